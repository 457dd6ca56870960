#!/usr/bin/env bash
# The default job with every objective and five seeds; one line of JSON per run in experiments/results/digits.jsonl.
set -euo pipefail
cd "$(dirname "$0")/.."
runs=$(mktemp -d)
: > experiments/results/digits.jsonl
for objective in vmcr2 mcr2 ce; do
  for seed in 0 1 2 3 4; do
    .venv/bin/python -m vmcr2 train digits --objective $objective --seed $seed --out "$runs/$objective-$seed" --json |
      .venv/bin/python -c '
import json, sys
summary, objective, seed, runs = json.load(sys.stdin), sys.argv[1], int(sys.argv[2]), sys.argv[3]
manifest = json.load(open(f"{runs}/{objective}-{seed}/manifest.json"))
for path in ("folder", "report"):
    summary.pop(path)
kept = ("torch", "python", "cores", "git_commit", "started")
print(json.dumps({"objective": objective, "seed": seed} | summary | {key: manifest[key] for key in kept}))
' $objective $seed "$runs" >> experiments/results/digits.jsonl
  done
done
rm -rf "$runs"
