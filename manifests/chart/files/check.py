"""What `helm test` asks: whether the operator answers, and whether the API server serves both definitions."""

import json
import ssl
import sys
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
WANTED = {"waltzclusters", "waltzmigrations"}


def answer(address: str, token: str = "") -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt") if token else None
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=10, context=context) as response:
        body: bytes = response.read()
    return body


operator = sys.argv[1]
answer(operator)
print(f"the operator answers at {operator}")
with open(f"{ACCOUNT}/token") as file:
    bearer = file.read()
for version in ("v1alpha1", "v1beta1"):
    served = json.loads(answer(f"https://kubernetes.default.svc/apis/waltz.dev/{version}", bearer))[
        "resources"
    ]
    missing = WANTED - {resource["name"] for resource in served}
    if missing:
        sys.exit(f"the API server does not serve {', '.join(sorted(missing))} of waltz.dev/{version}")
print("the API server serves both definitions")
