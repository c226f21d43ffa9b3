"""One level-triggered reconcile: observe the world once, plan (pure), apply (the only writer)."""
