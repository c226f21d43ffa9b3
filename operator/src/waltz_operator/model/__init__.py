"""Values: what one look at the world found (snapshot, facts), what is wanted, what is to be done (actions),
and why (reasons)."""
