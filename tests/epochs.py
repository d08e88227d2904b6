"""Epochs of DALI 2.4: of ten samples in three shards, and of seven samples in PyTorch; two to a batch."""

# Policy, pad_last_batch, stick_to_shard; of each shard three epochs, a digit for each sample.
EPOCHS_OF_THREE_SHARDS = [
    ("FILL", False, False, [["12 34", "56 78", "9A"], ["45 67", "89 A1", "23"], ["78 9A", "12 34", "56"]]),
    ("FILL", False, True, [["12 31", "23 12", "31 23"], ["45 64", "56 45", "64 56"], ["78 9A"] * 3]),
    ("FILL", True, False, [["12 33", "45 66", "78 9A"], ["45 66", "78 9A", "12 33"], ["78 9A", "12 33", "45 66"]]),
    ("FILL", True, True, [["12 33"] * 3, ["45 66"] * 3, ["78 9A"] * 3]),
    ("DROP", False, False, [["12", "56", "9A"], ["45", "89", "23"], ["78", "12", "56"]]),
    ("DROP", False, True, [["12", "23", "31"], ["45", "56", "64"], ["78"] * 3]),
    ("DROP", True, False, [["12", "45", "78"], ["45", "78", "12"], ["78", "12", "45"]]),
    ("DROP", True, True, [["12"] * 3, ["45"] * 3, ["78"] * 3]),
]

# Seven samples, ``"12|45 3|67"``: batches apart by spaces, pipelines by bars. As in DALI but for
# the FILL of readers, which becomes PARTIAL as DALI's documents say.
EPOCHS_IN_TORCH = [
    # shards, policy, pad, by: reader or size, the first three epochs
    (1, "FILL", False, "size", ["12 34 56 71", "23 45 67", "12 34 56 71"]),
    (1, "FILL", True, "size", ["12 34 56 77"] * 3),
    (1, "FILL", False, "reader", ["12 34 56 7", "23 45 67 1", "34 56 71 2"]),
    (1, "FILL", True, "reader", ["12 34 56 7"] * 3),
    (1, "DROP", False, "reader", ["12 34 56", "23 45 67", "34 56 71"]),
    (1, "DROP", False, "size", ["12 34 56", "23 45 67", "34 56 71"]),
    (1, "DROP", True, "reader", ["12 34 56"] * 3),
    (1, "DROP", True, "size", ["12 34 56"] * 3),
    (1, "PARTIAL", False, "reader", ["12 34 56 7", "23 45 67 1", "34 56 71 2"]),
    (1, "PARTIAL", False, "size", ["12 34 56 7", "23 45 67 1", "34 56 71 2"]),
    (1, "PARTIAL", True, "reader", ["12 34 56 7"] * 3),
    (1, "PARTIAL", True, "size", ["12 34 56 7"] * 3),
    (2, "FILL", False, "size", ["12|45 34|67", "56|12 71|34", "23|56 45|71"]),
    (2, "FILL", True, "size", ["12|45 33|67", "45|12 67|33", "12|45 33|67"]),
    (2, "DROP", False, "reader", ["12|45", "56|12", "23|56"]),
    (2, "DROP", True, "reader", ["12|45", "45|12", "12|45"]),
    (2, "PARTIAL", False, "reader", ["12|45 3|67", "56|12 71|3", "23|56 4|71"]),
    (2, "PARTIAL", False, "size", ["12|45 34|6", "56|12 71|3", "23|56 45|7"]),
    (2, "PARTIAL", True, "reader", ["12|45 3|67", "45|12 67|3", "12|45 3|67"]),
    (2, "PARTIAL", True, "size", ["12|45 33|6", "45|12 67|3", "12|45 33|6"]),
    (3, "FILL", False, "size", ["12|34|56 34|56|71", "56|71|23", "71|23|45"]),
    (3, "FILL", True, "size", ["12|34|56 22|44|77", "34|56|12 44|77|22", "56|12|34 77|22|44"]),
    (3, "DROP", False, "reader", ["12|34|56", "34|56|71", "56|71|23"]),
    (3, "DROP", True, "size", ["12|34|56", "34|56|12", "56|12|34"]),
    (3, "PARTIAL", False, "reader", ["12|34|56 ||7", "56|71|23 |2|", "23|45|67 4||"]),
    (3, "PARTIAL", False, "size", ["12|34|56 3", "56|71|23 7", "23|45|67 4"]),
    (3, "PARTIAL", True, "reader", ["12|34|56 ||7", "34|56|12 |7|", "56|12|34 7||"]),
    (3, "PARTIAL", True, "size", ["12|34|56 2", "34|56|12 4", "56|12|34 7"]),
]
