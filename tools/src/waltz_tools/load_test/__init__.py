"""Load on a running cluster, to see whether it is right (`validate`) and how fast it is (`producers`,
`consumers`)."""
