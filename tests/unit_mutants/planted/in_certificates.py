"""Planted bugs in what the operator does about certificates that it does not make itself."""

from __future__ import annotations

from tests.unit_mutants.planted.bug import bugs_in

_plan = bugs_in("operator/src/waltz_operator/plan")
_authority = bugs_in("libs/admin/src/waltz_admin")
_model = bugs_in("operator/src/waltz_operator/model")

CERTIFICATE_BUGS = (
    _plan(
        "a_secret_that_is_gone_is_whole",
        "operator",
        "certificate_problems.py",
        "    text = _unreadable(data) if there else _absent(cluster)\n",
        '    text = _unreadable(data) if there else ""\n',
        "A Secret that is deleted to be issued again restarts a healthy node into a pod that cannot start.",
    ),
    _plan(
        "only_who_shows_a_certificate_has_to_trust",
        "operator",
        "certificate_problems.py",
        "    yield other, role\n",
        "",
        "Storage trusts only an authority that the servers no longer have: writes stop, and nothing says why.",
    ),
    _plan(
        "a_server_needs_no_client_authentication",
        "operator",
        "certificate_problems.py",
        "    connects = role.role in _CONNECTS or (",
        "    connects = role.role not in (*_CONNECTS, role.role) or (",
        "Storage nodes refuse the servers' certificate, and the condition names partitions that are to be filled.",
    ),
    _plan(
        "certificates_of_others_are_renewed_by_themselves",
        "operator",
        "certificate_problems.py",
        "    if info.not_after - now >= min(",
        "    if info.not_after - now >= 0 * min(",
        "Nobody renews the certificates, and everything is well until all of them have ended.",
    ),
    _plan(
        "a_certificate_of_tomorrow_is_taken",
        "operator",
        "certificate_problems.py",
        "    if now < info.not_before:\n",
        "    if now < info.not_before - 1e9:\n",
        "Nodes are restarted with a certificate that their peers refuse until it is valid.",
    ),
    _authority(
        "what_is_not_supported_is_unforeseen",
        "operator",
        "authority.py",
        "    except _NOT_SUPPORTED as error:\n",
        "    except ZeroDivisionError as error:\n",
        "One authority of a bundle that `cryptography` does not support ends every pass, also of a deletion.",
    ),
    _authority(
        "any_key_belongs_to_any_certificate",
        "operator",
        "authority.py",
        'return "" if private.public_key() == public else "belongs to the certificate"\n',
        'return ""\n',
        "A node is restarted with the key of another certificate, and does not start.",
    ),
    _authority(
        "everybody_trusts_everybody",
        "operator",
        "authority.py",
        "    except (ValueError, TypeError, InvalidSignature):\n        return False\n",
        "    except (ValueError, TypeError, InvalidSignature):\n        return True\n",
        "Certificates of authorities that do not trust one another are never reported.",
    ),
    _plan(
        "a_node_is_restarted_without_its_certificate",
        "operator",
        "safety_gates.py",
        '    problem = facts.certificate_holding("storage")\n    if problem is not None:\n',
        '    problem = facts.certificate_holding("storage")\n    if problem is not None and not held:\n',
        "A storage node goes down, and its new pod waits for a Secret that is not there.",
    ),
    _plan(
        "partitions_are_assigned_without_a_certificate",
        "operator",
        "cluster.py",
        "    if unreachable is not None:\n",
        "    if unreachable is not None and decision.risky:\n",
        "Every pass ends in an error, and no condition names the Secret that is missing.",
    ),
    _model(
        "a_missing_certificate_is_another_authority",
        "operator",
        "facts.py",
        "    return one if facts.certificate_holding(component) is None else ",
        "    return one if facts.certificate_holding(component) is None or live else ",
        "The servers are rolled out into pods that wait for a Secret which is not there.",
    ),
    _model(
        "servers_do_not_wait_for_the_certificate_of_storage",
        "operator",
        "certificate_problems.py",
        "{component, *_NEEDED}",
        "{component}",
        "An upgrade changes the servers before the storage nodes, which wait for their Secret.",
    ),
)
