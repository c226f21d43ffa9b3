"""Users of the cluster that write down what they did and saw."""
