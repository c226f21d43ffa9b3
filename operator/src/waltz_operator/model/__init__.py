"""Values: what one observation found (snapshot, facts), what the specification asks for, what is to be done
(actions), and why (reasons)."""
