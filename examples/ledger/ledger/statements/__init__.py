"""The statements service: derives a statement per account and a summary per book from the log. It decides
nothing."""
