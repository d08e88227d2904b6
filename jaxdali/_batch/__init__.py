"""One batch: read, prepared on the host, launched, checked, and given its final form."""
