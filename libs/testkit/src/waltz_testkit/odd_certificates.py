"""Certificates that OpenSSL reads and `cryptography` does not support, made of others by changing a few
bytes. Their signatures are wrong."""

import base64

_CURVE, _OTHER_CURVE = bytes.fromhex("06082a8648ce3d030107"), bytes.fromhex("06082a8648ce3d030106")
"""P-256, and prime239v3, which has no name in `cryptography`."""
_ISSUER_KEY, _OWN_KEY = bytes.fromhex("0603551d23"), bytes.fromhex("0603551d0e")
"""Extensions of the two key ids."""
_DNS_NAME, _X400_ADDRESS = b"\x82", b"\xa3"


def not_supported(certificate: bytes, name: str) -> dict[str, bytes]:
    """By what is not supported in it. `certificate`: PEM, signed with a P-256 key by another one, for the DNS
    name `name` among others."""
    dns = bytes((len(name),)) + name.encode()
    changes = {
        "curve": (_CURVE, _OTHER_CURVE),
        "extension twice": (_ISSUER_KEY, _OWN_KEY),
        "name": (_DNS_NAME + dns, _X400_ADDRESS + dns),
    }
    return {what: _changed(certificate, *change) for what, change in changes.items()}


def _changed(certificate: bytes, old: bytes, new: bytes) -> bytes:
    first, *lines, last = certificate.splitlines()
    der = base64.b64decode(b"".join(lines))
    if old not in der:
        raise ValueError("the certificate has nothing to change")
    return b"\n".join((first, base64.b64encode(der.replace(old, new)), last)) + b"\n"
