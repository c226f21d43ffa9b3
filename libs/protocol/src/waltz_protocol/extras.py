"""How messages name an extra that is not installed.

None of them is a command for pip: nobody has reserved the names of our distributions on the public package
index, so the command would run the code of whoever takes them. docs/install.md has the commands that do not
ask an index for them.
"""


def with_extra(distribution: str, extra: str) -> str:
    """What to do where an extra of a distribution is missing; the end of a message."""
    return f"install {distribution} with its extra {extra} (docs/install.md)"
