"""Named bad days: what others were found to lose, played on this cluster, with the same checkers as every
seed."""
