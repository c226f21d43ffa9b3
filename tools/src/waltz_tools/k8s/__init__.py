"""What `waltz k8s` does, over the operator's library (`waltz-operator`, the extra `[k8s]`): look, plan, ask,
collect, render."""
