"""Where the parts of the embedded default can be reached: what CLI, CDK and tests read."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class Endpoints:
    """The content of endpoints.json. The keys open the embedded AWS and nothing else."""

    aws: str
    ec2: str
    region: str
    account: str
    access_key_id: str
    secret_access_key: str
    kubeconfig: str  # a path
    cluster_name: str
    cluster_endpoint: str
    certificate_authority: str  # base64 of PEM, as DescribeCluster gives it
    state: str  # the stack's folder
    path: str  # for PATH: holds `node` and `go`

    def environment(self) -> dict[str, str]:
        """What makes any AWS SDK in a child process talk to the embedded AWS as its owner."""
        return {
            "AWS_ACCESS_KEY_ID": self.access_key_id,
            "AWS_SECRET_ACCESS_KEY": self.secret_access_key,
            "AWS_REGION": self.region,
            "AWS_DEFAULT_REGION": self.region,
            "AWS_EC2_METADATA_DISABLED": "true",
        }

    def document(self) -> dict[str, str]:
        return asdict(self)

    @classmethod
    def read(cls, path: Path) -> "Endpoints":
        return cls(**json.loads(path.read_text()))
