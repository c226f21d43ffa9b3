"""PKCS#12 stores with more than one private key."""

import base64
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, pkcs12

from protocol_tests.test_tls import CA, SERVER
from waltz_protocol.aio.key_stores import key_aliases
from waltz_protocol.aio.tls import TlsSettings, client_context, server_context
from waltz_protocol.errors import TlsSettingsError

TWO_KEYS = base64.b64decode(
    """
MIIGhwIBAzCCBjEGCSqGSIb3DQEHAaCCBiIEggYeMIIGGjCCAjEGCSqGSIb3DQEHAaCCAiIEggIeMIICGjCCAQkGCyqGSIb3
DQEMCgECoIG9MIG6MGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBSCarrLwQyyEUxumcMNaLC2h66EgQICJxACASAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEFezMsWcCOiemcPzOnMIg48EUKsK+gGeqdHirEWi8quMusXdXnMh6ea9Cz33
O2cWdulS1vVp2BVD7Q/7pDzx20xDoFstUHzjRs90XmGI4N0o5NWcgFeWMPaDlCmstWr2TH9sMTowFQYJKoZIhvcNAQkUMQge
BgBvAGwAZDAhBgkqhkiG9w0BCRUxFAQSVGltZSAxNzk1ODU5NTM1OTAzMIIBCQYLKoZIhvcNAQwKAQKggb0wgbowZgYJKoZI
hvcNAQUNMFkwOAYJKoZIhvcNAQUMMCsEFEA2570vqgZAnixGEEdJUsfRLBxLAgInEAIBIDAMBggqhkiG9w0CCQUAMB0GCWCG
SAFlAwQBKgQQzxELUgvGBBkrpEuHmL974gRQ2Kl61GAY9uu70xI9gwIWfYxqCxHGnzuI8MEUfKnpovExulvvisZSKMu2n8mF
jkqvN9rab/dHrPTDMwTzc6/xRN+NvDDgGAb2lrySeIBJL48xOjAVBgkqhkiG9w0BCRQxCB4GAG4AZQB3MCEGCSqGSIb3DQEJ
FTEUBBJUaW1lIDE3OTU4NTk1NDcxMzYwggPhBgkqhkiG9w0BBwagggPSMIIDzgIBADCCA8cGCSqGSIb3DQEHATBmBgkqhkiG
9w0BBQ0wWTA4BgkqhkiG9w0BBQwwKwQUyCdrV4CMkipte84CmqRToyxaQp0CAicQAgEgMAwGCCqGSIb3DQIJBQAwHQYJYIZI
AWUDBAEqBBDvvNDpO2+1aAlg/o9TF4zhgIIDUCwX1+xIVH+UNVe/OuwAIMYZ4GRQVxGxTmvz6MEIDRUrSvAkzLZD1x4gHw/y
f9+VIn3VGhQCaFxMmSYJT++hTWHhpu+XoZzFPiRCi3/OZNPXQXDppNN/JFqShAgSPaZa9NlPgES2eqKCfGJTAm/qdFQGzCfn
/A0n2uARuFLg6etqepV0cBjtoo+FkwptmU0y57/0BVvRi8105c39p64Hjbqp++1g33zYT2Cos8l+yDrN391iZEwTeCTQxIGM
MTugrQePywZ+XSoNFldKnOp5GLGX/41JYmRjGvomkLBz/oVURHbXl4deGG60KxKbV7zhVYD1WVmObx8h3ak949E0UbPzckJt
SpFWn177ouyl/Ob7noOlj/Z6y+dvBLV2O48Y8gng1IVmMe4h3rqNPchMk0KekF0BMx+6WGsHR9mSOhNeTzSvPNo5kUNcYkMb
q0OletFCUmqRWLt6P9OKuLImfZ8eSleIIwD7q89squiixkWt9SHVj1th7GF++PtwM4awraRTZ7YfTZaeEmxFBEsyUxV9NoTk
jOhjrH9OZcu2T5NXC8BUHrKl4n/DFRGLyaFCHUWKrUcFJqenxOTmYOVFNwuWmSBtRawoFSVTKuon8Tp272PIg3Xs5gg5CP+U
z9hgK0j8m9ycuhxacthzHe2AB18CcgUV78D47GfLqm1uE9/EYi6KDgACVMNGfd8lwWMI5aHQ6CvgDofqC7F4NXJzCoDVALvM
ifShO9RYn73px4xRYvQ1g91k4dK6IIWF4AH102jVQDURkWruy5MPr/AkelS2lvXc1+Nx2bOLrRogbOsXaAPgqa8IqBKK1ZaO
OTy6x7QfeFiX2xknhzBVbeO/PTxAu3hJQswFQdKWsMoDNF5OlEBXPclEL1BzYnndOtdNsE6A5rvFG87fH0qCbZrk6AaLtkxD
KhBt+KLKGfqIMkR1NFZJeGKGJ4NkZXKkZv/lyvqLU7tVhClpfLWEqWPI6zcbHyKdMsaaJ1HMWou8j3JwxAUiIaxXfGC0PjeR
lURWAttKBEl180uuczvdh7JcvGbeW5j0y7gGUWcmpGIoaoCtQ+GNyWIPkq4+qYWj9gPaOfpWJhHwrrssE2j3lpdkvWKIiVUX
nxoi1xDV93rpcBltME0wMTANBglghkgBZQMEAgEFAAQgbgS2E/HdLfLuGXzBjcOIWBXSHvjoM57jkmPaQxUDdDQEFPqgZ311
sthmlWgcg7AhtZXHcVAtAgInEA==
"""
)
"""`keytool -genkeypair -keyalg EC -keystore keys.p12 -storepass changeit` of Java 17 with `-alias old`, and
once more with `-alias new`."""


def test_a_store_of_several_keys_is_refused_with_their_names(tmp_path: Path) -> None:
    """`cryptography` gives the first one of the file, and Java the one whose alias comes first by hash value:
    a certificate that nobody chose would be shown."""
    store = tmp_path / "keys.p12"
    store.write_bytes(TWO_KEYS)
    settings = TlsSettings(key_store=str(store), key_store_password="changeit", prefix="server.ssl")
    with pytest.raises(TlsSettingsError) as caught:
        server_context(settings)
    assert str(caught.value) == (
        f"{store} (server.ssl.keyStore.location) contains 2 private keys (old, new), and nothing says which one is "
        f"meant: copy that into a file of its own: keytool -importkeystore -srckeystore {store} -srcalias ALIAS "
        f"-destkeystore {tmp_path}/keys.one.p12 -deststoretype PKCS12"
    )
    trusting = TlsSettings(trust_store=str(store), trust_store_password="changeit")
    assert client_context(trusting) is not None


@pytest.mark.parametrize("name", [b"waltz", "ä".encode() * 50, None])
def test_a_key_has_its_name(name: bytes | None) -> None:
    content = pkcs12.serialize_key_and_certificates(
        name, SERVER.key, SERVER.certificate, [CA.certificate], BestAvailableEncryption(b"secret")
    )
    assert key_aliases(content) == [name.decode() if name else "one without a name"]
