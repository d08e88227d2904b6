"""How batches are made: programs, their launch, threads."""
