"""How a release is made: wheels and sdists of the members that are shipped, the archive for Spark's
`--py-files`, and the check that versions, changelog, images and metadata agree."""
