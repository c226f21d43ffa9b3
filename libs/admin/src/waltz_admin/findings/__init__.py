"""What is wrong with a cluster, by what evidence, and what comes next: the one engine behind `waltz doctor`,
`waltz explain`, `waltz cluster status` and the console. `rules` has the rules, `explain` the words about one
partition."""
