"""What speech and images share: how their commands speak and end, and the pages on which one looks and listens."""
