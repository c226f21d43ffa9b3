"""Errors of the API package: what a person wrote, in one line."""


class ResourceError(Exception):
    """An object that cannot be read as what it says it is. `path` is the field, dotted."""

    retriable = False
    user_error = True

    def __init__(self, path: str, text: str) -> None:
        super().__init__(f"{path}: {text}")
        self.path = path
        self.text = text
