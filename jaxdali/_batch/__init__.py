"""Makes one batch: reads it, prepares it on the host, launches it, checks it, and gives it its final form."""
