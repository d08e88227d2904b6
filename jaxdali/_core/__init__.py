"""The definition of operators: values, contexts, graph, arguments."""
