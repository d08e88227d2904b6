"""What an operator is: values, contexts, graph, arguments."""
