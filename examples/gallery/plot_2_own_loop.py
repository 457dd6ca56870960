"""
The loss in your own loop
=========================

``VMCR2Loss`` takes features and labels like any other loss of PyTorch. ``rate_reduction`` says what the features have
become: ΔR = R − R_c, the rate of all features minus the rate of the classes one by one.
"""

# %%
# A loop
# ------
# The data are three noisy classes in 20 dimensions. Nothing here is special to this library but the line with the loss.
import matplotlib.pyplot as plt
import torch

import vmcr2

torch.manual_seed(0)
x, labels = torch.randn(600, 20), torch.arange(600) % 3
x += 4 * torch.eye(20)[labels]
network = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 12))
loss = vmcr2.VMCR2Loss(num_classes=3, dim=12, atoms_per_class=4)
optimiser = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)


def rates() -> vmcr2.RateTerms:
    """R, R_c and ΔR of all features as they are now."""
    with torch.no_grad():
        return vmcr2.rate_reduction(torch.nn.functional.normalize(network(x), dim=1), labels)


curve = [rates()]
for _step in range(300):
    optimiser.zero_grad()
    loss(network(x), labels).backward()
    optimiser.step()
    curve.append(rates())

# %%
# What was learned
# ----------------
# Features of an untrained network point everywhere: both rates are large, and their difference is small. First R_c
# falls: each class needs fewer directions. Then R rises again: the classes move apart. The dotted line is the largest
# ΔR that three classes can have in 12 dimensions: orthogonal subspaces of four dimensions each.
best = vmcr2.functional.maximal_rate_reduction(12, 3)
figure, axis = plt.subplots(figsize=(6.5, 3.6), layout="constrained")
for name, title in (
    ("expansion", "R, all features"),
    ("compression", "R_c, class by class"),
    ("delta", "ΔR = R − R_c"),
):
    axis.plot([getattr(terms, name).item() for terms in curve], label=title)
axis.axhline(best, color="grey", linestyle=":", linewidth=1)
axis.set(xlabel="step", ylabel="nats")
axis.legend()
plt.show()

# %%
# A classifier comes without training: the subspace of each class.
features = torch.nn.functional.normalize(network(x), dim=1).detach()
classifier = vmcr2.NearestSubspace().fit(features, labels)
accuracy = (classifier.predict(features) == labels).float().mean().item()
print(f"ΔR {curve[-1].delta:.2f} of at most {best:.2f}; right on {accuracy:.3f} of the samples")
