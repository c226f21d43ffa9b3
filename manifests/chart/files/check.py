"""What `helm test` asks: whether the operator answers, and whether the API server serves both definitions.

Arguments: the operator's address, empty where it has no Service; by a test of it also the API server's and
the folder of a service account.
"""

import json
import ssl
import sys
import urllib.request

ACCOUNT = sys.argv[3] if len(sys.argv) > 3 else "/var/run/secrets/kubernetes.io/serviceaccount"
SERVER = sys.argv[2] if len(sys.argv) > 2 else "https://kubernetes.default.svc"
WANTED = {"waltzclusters", "waltzmigrations"}


def answer(address: str, token: str = "") -> bytes:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    context = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt") if token else None
    request = urllib.request.Request(address, headers=headers)
    with urllib.request.urlopen(request, timeout=10, context=context) as response:
        body: bytes = response.read()
    return body


operator = sys.argv[1]
if operator:
    answer(operator)
    print(f"the operator answers at {operator}")
else:
    print("the operator is not asked, since it has no Service (service.create)")
with open(f"{ACCOUNT}/token") as file:
    bearer = file.read()
for version in ("v1alpha1", "v1beta1"):
    served = json.loads(answer(f"{SERVER}/apis/waltz.dev/{version}", bearer))["resources"]
    missing = WANTED - {resource["name"] for resource in served}
    if missing:
        sys.exit(f"the API server does not serve {', '.join(sorted(missing))} of waltz.dev/{version}")
print("the API server serves both definitions")
