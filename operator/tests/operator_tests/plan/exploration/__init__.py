"""State exploration of the planners: a small pure world in which every write, crash, fault and old answer can
come at any moment.

`world` holds the state and what the operator sees of it, `hands` carries out actions, `nature` does
what Kubernetes, servers and accidents do, `scenario` says what people ask for, `invariants` judge every
write, `explore` visits states, `converge` lets faults stop and looks whether the cluster becomes what was
asked for, `mutants` are planners with a planted bug.
"""
