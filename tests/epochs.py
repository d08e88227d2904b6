"""What DALI 2.4 gives of ten samples in three shards, two to a batch."""

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
