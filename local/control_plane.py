"""The real control plane on loopback: etcd, API server, controllers, scheduler, Karpenter."""

import base64
import json

from local.endpoints import Endpoints
from local.modules import binary
from local.parts import Health, Part
from local.settings import Layout, Settings

# The defaults of 20 and 50 requests a second would throttle a burst of a thousand Jobs.
FAST = ("--kube-api-qps=2000", "--kube-api-burst=4000")


def account_line(token: str, user: str, name: str) -> str:
    """A line of the API server's token file for a service account, in the groups of one."""
    _, _, namespace, _ = user.split(":")
    return f'{token},{user},{name},"system:serviceaccounts,system:serviceaccounts:{namespace}"'


def kubeconfig(endpoints: Endpoints, user: str, token: str) -> str:
    """A kubeconfig in JSON, which is YAML; it carries the authority, so it can be moved."""
    cluster = {
        "server": endpoints.cluster_endpoint,
        "certificate-authority-data": endpoints.certificate_authority,
    }
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": endpoints.cluster_name,
            "clusters": [{"name": endpoints.cluster_name, "cluster": cluster}],
            "users": [{"name": user, "user": {"token": token}}],
            "contexts": [
                {
                    "name": endpoints.cluster_name,
                    "context": {"cluster": endpoints.cluster_name, "user": user},
                }
            ],
        },
        indent=2,
    )


def webhook_config(port: int) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "webhook",
            "clusters": [{"name": "sts", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
            "users": [{"name": "apiserver", "user": {}}],
            "contexts": [{"name": "webhook", "context": {"cluster": "sts", "user": "apiserver"}}],
        }
    )


def authority_data(layout: Layout) -> str:
    return base64.b64encode((layout.certs / "ca.crt").read_bytes()).decode()


def write_credentials(
    layout: Layout, endpoints: Endpoints, ports: dict[str, int], token: str, *accounts: str
) -> None:
    """Write how clients prove who they are; `accounts` are further lines of the token file."""
    lines = [f"{token},admin,admin,system:masters", *accounts]
    (layout.certs / "tokens.csv").write_text("\n".join(lines) + "\n")
    (layout.certs / "webhook.json").write_text(webhook_config(ports["webhook"]))
    layout.kubeconfig.write_text(kubeconfig(endpoints, "admin", token))
    for path in (layout.certs / "tokens.csv", layout.kubeconfig):
        path.chmod(0o600)


def control_plane(settings: Settings, endpoints: Endpoints, ports: dict[str, int]) -> list[Part]:
    layout = Layout(settings.state)
    certs, authority = layout.certs, layout.certs / "ca.crt"
    etcd, peer = (f"http://127.0.0.1:{ports[name]}" for name in ("etcd", "etcd-peer"))
    api = endpoints.cluster_endpoint
    serving = (
        f"--tls-cert-file={certs / 'apiserver.crt'}",
        f"--tls-private-key-file={certs / 'apiserver.key'}",
        "--bind-address=127.0.0.1",
    )
    client = (f"--kubeconfig={layout.kubeconfig}", "--leader-elect=false", *FAST)
    accounts = certs / "service-accounts.key"
    mounted = settings.nodes == "kubelet"  # process nodes mount no tokens of accounts

    def program(name: str, *arguments: str) -> tuple[str, ...]:
        return (str(binary(settings.cache, name)), *arguments)

    def secure(name: str) -> Health:
        return Health(f"https://127.0.0.1:{ports[name]}/healthz", authority)

    return [
        Part(
            "etcd",
            program(
                "etcd",
                f"--data-dir={layout.data / 'etcd'}",
                "--unsafe-no-fsync",  # a throw-away cluster: a power cut may take it
                f"--listen-client-urls={etcd}",
                f"--advertise-client-urls={etcd}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={peer}",
                f"--initial-cluster=default={peer}",
                "--logger=zap",
                "--log-level=warn",
            ),
            port=ports["etcd"],
            health=Health(f"{etcd}/health"),
        ),
        Part(
            "kube-apiserver",
            program(
                "kube-apiserver",
                *serving,
                f"--secure-port={ports['kube-apiserver']}",
                f"--etcd-servers={etcd}",
                f"--cert-dir={certs / 'own'}",
                f"--token-auth-file={certs / 'tokens.csv'}",
                f"--authentication-token-webhook-config-file={certs / 'webhook.json'}",
                "--authentication-token-webhook-version=v1",
                "--authentication-token-webhook-cache-ttl=10s",
                "--authorization-mode=RBAC",
                "--service-cluster-ip-range=10.0.0.0/24",
                f"--service-account-issuer={api}",
                f"--service-account-key-file={accounts}",
                f"--service-account-signing-key-file={accounts}",
                f"--kubelet-client-certificate={certs / 'kubelet-client.crt'}",
                f"--kubelet-client-key={certs / 'kubelet-client.key'}",
                "--kubelet-preferred-address-types=InternalIP",  # no resolver knows a node's name
                *([] if mounted else ["--disable-admission-plugins=ServiceAccount"]),
            ),
            port=ports["kube-apiserver"],
            health=Health(f"{api}/readyz", authority),
            after=("etcd",),
            grace_seconds=3,  # it would wait a minute for watches that nobody needs any more
        ),
        Part(
            "kube-controller-manager",
            program(
                "kube-controller-manager",
                *serving,
                *client,
                f"--secure-port={ports['kube-controller-manager']}",
                "--concurrent-job-syncs=20",
                f"--root-ca-file={authority}",  # for pods that mount an account
                "--use-service-account-credentials",  # as on EKS: policies know the job controller
            ),
            port=ports["kube-controller-manager"],
            health=secure("kube-controller-manager"),
            after=("kube-apiserver",),
        ),
        Part(
            "kube-scheduler",
            program(
                "kube-scheduler", *serving, *client, f"--secure-port={ports['kube-scheduler']}"
            ),
            port=ports["kube-scheduler"],
            health=secure("kube-scheduler"),
            after=("kube-apiserver",),
        ),
        Part(
            "karpenter",
            program("karpenter"),
            port=ports["karpenter"],
            health=Health(f"http://127.0.0.1:{ports['karpenter']}/readyz"),
            after=("crds", "ec2", *(["queue"] if settings.interruption_queue else [])),
            environment={
                "KUBECONFIG": str(layout.kubeconfig),
                "CLUSTER_NAME": endpoints.cluster_name,
                "CLUSTER_ENDPOINT": api,
                "EKS_CONTROL_PLANE": "false",
                "ISOLATED_VPC": "true",  # on-demand prices from its own list, not from a price API
                "DISABLE_DRY_RUN": "true",
                "DISABLE_LEADER_ELECTION": "true",
                "SYSTEM_NAMESPACE": "kube-system",
                "KARPENTER_SERVICE": "karpenter",
                "METRICS_PORT": str(ports["karpenter-metrics"]),
                "HEALTH_PROBE_PORT": str(ports["karpenter"]),
                "INTERRUPTION_QUEUE": settings.interruption_queue or "",
                "AWS_ENDPOINT_URL": endpoints.ec2,
                "AWS_ENDPOINT_URL_SQS": endpoints.aws,
                **endpoints.environment(),
            },
        ),
    ]
