"""The HTTP service on Modal: `modal deploy service_modal.py`.

The secret `kernel-harness` has PGPASSWORD, STORE (a PostgreSQL URL: a container's disk does not last) and TENANTS, the
text of the tenants file. The image is that of the Dockerfile plus the extra `service`.
"""

import os
import subprocess
from pathlib import Path

import modal

app = modal.App("kernel-harness")
image = modal.Image.from_registry("registry.example.com/kernel-harness-service:cuda").entrypoint([])


@app.function(
    image=image,
    gpu="H100",
    cpu=8,
    memory=65536,
    secrets=[modal.Secret.from_name("kernel-harness")],
    min_containers=1,
    max_containers=1,
    timeout=24 * 3600,
)
@modal.concurrent(max_inputs=200)
@modal.web_server(8000, startup_timeout=600)
def service() -> None:
    """Start the service; Modal forwards requests to its port."""
    tenants = Path("/tmp/tenants.yaml")
    tenants.write_text(os.environ["TENANTS"])
    command = ["harness", "serve", "--http", "0.0.0.0:8000", "--tenants", str(tenants), "--device", "cuda"]
    subprocess.Popen([*command, "--store", os.environ["STORE"]])
