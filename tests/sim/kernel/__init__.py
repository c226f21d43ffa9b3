"""The simulated machine: time, processes, network, disk and ZooKeeper, all decided by one seed."""
