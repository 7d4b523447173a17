"""Reads documents with PyYAML, a parser of YAML 1.1, and compares them with their JSON: `yaml_documents.py FILE.yaml…`."""

import json
import sys
from pathlib import Path

import yaml

for name in sys.argv[1:]:
    file = Path(name)
    document = yaml.safe_load(file.read_text())
    assert document == json.loads(file.with_suffix(".json").read_text()), f"{file} differs from its JSON"
