"""The HTTP face, with Flask. 200 with the answer of each account, 400 makes no sense, 503 ask again."""

from __future__ import annotations

from flask import Flask, request

from ledger.accounts.transfers import opening
from ledger.branch.desk import Desk
from ledger.names import check_names
from waltz_client import WaltzClientError
from waltz_client.sql import BlockingSqlApplier


def create_app(desk: Desk, applier: BlockingSqlApplier) -> Flask:
    """What the service answers."""
    app = Flask(__name__)

    @app.before_request
    def names_in_path() -> tuple[dict[str, str], int] | None:
        try:
            check_names(*(request.view_args or {}).values())
        except ValueError as error:
            return {"error": f"{type(error).__name__}: {error}"}, 400
        return None

    @app.post("/books/<book>/accounts")
    def open_accounts(book: str) -> tuple[dict[str, str], int]:
        try:
            wishes = [opening(book, body) for body in request.get_json(force=True)]
            if not 0 < len({wish.account for wish in wishes}) == len(wishes):
                raise ValueError("one account or more, each once")
        except TypeError:
            return {"error": "the body is a list of accounts, each an object with account and balance"}, 400
        except (KeyError, ValueError, RecursionError) as error:
            return {"error": f"{type(error).__name__}: {error}"}, 400
        return desk.open_all(book, wishes), 200

    @app.get("/books/<book>/history")
    def history(book: str) -> list[dict[str, object]]:
        return list(desk.history(book))

    @app.get("/health")
    def health() -> tuple[dict[str, str], int]:
        report = {str(partition): f"{lag} transactions behind" for partition, lag in applier.lag().items()}
        report |= {str(partition): str(error) for partition, error in applier.stopped.items()}
        return report, 503 if applier.stopped else 200

    @app.errorhandler(WaltzClientError)
    def failed(error: WaltzClientError) -> tuple[dict[str, str], int]:
        return {"error": str(error)}, 503

    return app
