"""Prints the manifests that Helm makes of a chart with the values on standard input (JSON), if those are found right.

Usage: render.py <chart> <version of Kubernetes>...

They have to pass `helm lint --strict`, and the schemas of these versions of Kubernetes, with no member that those do
not know. Kinds of the Prometheus operator are its own.
"""

import json
import sys

import helm_python
import kubernetes_validate
import yaml

folder, *versions = sys.argv[1:]
values = json.load(sys.stdin)
report = helm_python.lint(folder, values, strict=True)
findings = [finding["error"] for finding in report["messages"] if finding["severity"] > 1]
if findings:
    sys.exit("\n".join(findings))
with helm_python.Chart.load(folder) as chart:
    rendered = chart.render(values, name="gatepost", namespace="gatepost", is_install=True)
texts = [text.strip() for name, text in sorted(rendered.items()) if name.endswith(".yaml") and text.strip()]
manifests = [one for text in texts for one in yaml.safe_load_all(text) if one is not None]
for manifest in manifests:
    if manifest["apiVersion"] == "monitoring.coreos.com/v1":
        continue
    for version in versions:
        try:
            kubernetes_validate.validate(manifest, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            where = f"{manifest['kind']} {manifest['metadata']['name']}, Kubernetes {version}"
            findings.append(f"{where}: {'.'.join(map(str, error.path))}: {error.message}")
if findings:
    sys.exit("\n".join(findings))
for text in texts:
    print(text if text.startswith("---") else f"---\n{text}")
