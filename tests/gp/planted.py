"""Mistakes planted in src/gp; the first ones are those of published code."""

from tests.planting import mistake

ACTIVE_SET = ("src/gp/active_set.py", "tests/gp/test_active_set.py")
EVIDENCE = ("src/gp/evidence.py", "tests/gp/test_evidence.py")
SPARSE = ("src/gp/sparse.py", "tests/gp/test_sparse.py")
MARGINALS = ("src/gp/training_marginals.py", "tests/gp/test_training_marginals.py")
BOUNDS = ("src/gp/bounds.py", "tests/gp/test_bounds.py")
EXACT = ("src/gp/exact.py", "tests/gp/test_exact.py")
KERNELS = ("src/gp/kernels.py", "tests/gp/test_kernels.py")
PSI = ("src/gp/psi.py", "tests/gp/test_psi.py")
PATTERNS = ("src/gp/patterns.py", "tests/gp/test_patterns.py")
QUADRATIC_BOUND = ("src/gp/quadratic_bound.py", "tests/gp/test_quadratic_bound.py")
LABELS = ("src/gp/labels.py", "tests/gp/test_labels.py")
MIXTURE = ("src/gp/mixture.py", "tests/gp/test_mixture.py")
LEAVE_ONE_OUT = ("src/gp/leave_one_out.py", "tests/gp/test_leave_one_out.py")
REGULARISATION = ("src/gp/regularisation.py", "tests/gp/test_regularisation.py")
LOW_RANK = ("src/gp/low_rank.py", "tests/gp/test_low_rank.py")
LINALG = ("src/gp/linalg.py", "tests/gp/test_linalg.py")
GEOMETRY = ("src/gp/geometry.py", "tests/gp/test_geometry.py")
KERNEL_DERIVATIVES = ("src/gp/kernel_derivatives.py", "tests/gp/test_kernel_derivatives.py")
GEODESICS = ("src/gp/geodesics.py", "tests/gp/test_geodesics.py")
LATENT_GRAPHS = ("src/gp/latent_graphs.py", "tests/gp/test_latent_graphs.py")

PLANTED = [
    mistake(name, files, old, new)
    for files, mistakes in {
        ACTIVE_SET: {
            "the square of the mean": (
                "torch.linalg.vector_norm(error, dim=1).square()",
                "(x_rest - (projection.mT @ whitened).square()).sum(-1)",
            ),
            "R / N": ("(num_data - active_size) / (len(x) - active_size)", "(len(x) - active_size) / num_data"),
            "no log 2 pi in the rest": ("(variance.log() + LOG_2PI)", "variance.log()"),
            "sd for variance in the density": ("+ squared_error / variance)", "+ squared_error / variance.sqrt())"),
            "sd for variance in the log": ("variance.log()", "variance.sqrt().log()"),
            "no noise in the variance of the rest": ("k_rr + noise - projection", "k_rr - projection"),
            "no noise in the predictive variance": (" + self.noise - projection", " - projection"),
            "half the log-determinant": ("2 * chol.diagonal()", "chol.diagonal()"),
            "N for N - A": ("(num_data - active_size)", "num_data"),
            "no weight in the random-size form": ("len(x) / rest_size * rest", "rest"),
            "the mean's share of K_AA once": ("through_mean, alpha=2", "through_mean, alpha=1"),
            "the variance's share of K_AA twice": ("torch.add(through_variance,", "torch.add(2 * through_variance,"),
            "half of K_AR": (".mul_(-2)", ".mul_(-1)"),
            "another sign in K_AR": (".mul_(-2)", ".mul_(2)"),
            "no D in the derivative in v": ("squared_error / variance - ctx.num_outputs", "squared_error / variance"),
            "no D K^-1": ("add_diagonal(whitened_gram, -ctx.num_outputs)", "whitened_gram"),
            "no noise of the rest in its gradient": ("by_k_aa.trace() + by_variance.sum()", "by_k_aa.trace()"),
        },
        EVIDENCE: {
            "Q for D": ("num_outputs * log_det", "2 * log_det"),
            "no log 2 pi": (" + num_points * num_outputs * LOG_2PI", ""),
            "no D in the gradient": ("beta=-alpha.shape[1]", "beta=-1"),
            "blocks forget earlier ones": ("for earlier in done:", "for earlier in done[:1]:"),
        },
        SPARSE: {
            "the KL counts one output": ("mean.shape[-1] // num_scales * spread", "spread"),
            "the KL without its log-determinant": (" - num_scales * size - log_det", " - num_scales * size"),
            "the transposed factor": ("self.scale.double().mT, projection", "self.scale.double(), projection"),
            "a batch counts once": ("identity + repeats * data.precision", "identity + data.precision"),
            "a gradient without its symmetric part": ("by_grams + by_grams.mT", "2 * by_grams"),
            "half the gradient of the weights": ("by_weight = 0.5 * ", "by_weight = 0.25 * "),
            "weights forgotten in the shift": ("projection @ (weight * y)", "projection @ y.double()"),
            "no noise in the prediction": ("diag=True) + self.noise", "diag=True)"),
        },
        MARGINALS: {
            "the KL of the optimal q counts its trace twice": ("+ 0.5 * by_kl.unsqueeze(-1)", "+ by_kl.unsqueeze(-1)"),
            "the prior's part of W alone": ("unsqueeze(-3) - spread.mT @ spread", "unsqueeze(-3) + 0 * spread"),
            "the mean has no share in K": (" - mean @ by_mean.mT", ""),
            "the whole diagonal of F": ("factor.diagonal(dim1=-2, dim2=-1).mul_(0.5)", "factor.mul_(1.0)"),
            "one side of a quadratic form": ("2 * by_quadratic.to(product)", "by_quadratic.to(product)"),
            "a batch of the optimal q counts once": ("identity + repeats * precision", "identity + precision"),
        },
        BOUNDS: {
            "no trace term": (" + x.shape[-1] * projected.unexplained", ""),
            "the batch counts as everything": (
                "num_data / len(x) * likelihood).to(x), q.kl(), jitter)\n\n\ndef incomplete",
                "likelihood).to(x), q.kl(), jitter)\n\n\ndef incomplete",
            ),
            "hidden values have variance": (
                "torch.where(mask, (x - mean).square() + variance, 0.0)",
                "mask * (x - mean).square() + variance",
            ),
            "hidden values have noise": ("(mask.sum() * (noise", "(mask.numel() * (noise"),
            "one output's spread": ("q.mean.shape[-1] // num_scales * spread", "spread"),
            "no log-determinant": (" + log_det + error / noise", " + error / noise"),
        },
        PATTERNS: {
            "unseen points have a determinant": ("(1 - self.seen).diag_embed()", "2 * (1 - self.seen).diag_embed()"),
            "an unseen point explains": (
                "solve_lower(chol, seen.unsqueeze(2) * k_ar)",
                "solve_lower(chol, k_ar.expand(len(seen), -1, -1))",
            ),
            "all values of the rest count": (
                "error.square().sum(2), observed.sum(2)",
                "error.square().sum(2), torch.ones_like(observed).sum(2)",
            ),
            "one output per pattern": ("(num_outputs * log_det).sum()", "log_det.sum()"),
            "the gradient of the rest forgets the noise": ("by_k_aa.trace() + by_k_rr.sum()", "by_k_aa.trace()"),
            "the gradient reaches unseen points": (
                "    return outer * seen.unsqueeze(1) * seen.unsqueeze(2)",
                "    return outer",
            ),
            "predictions mix up the patterns": (
                "(unexplained + self.noise)[:, self.pattern]",
                "(unexplained + self.noise)[:, self.pattern.flip(0)]",
            ),
            "rounding may make a variance negative": (".clamp_min(0)\n        return k_ra", "\n        return k_ra"),
        },
        EXACT: {
            "half the squares": ("log_det + 0.5 * self.whitened", "log_det + 0.25 * self.whitened"),
            "no variance in the expectation": ("(y - mean).square() + variance", "(y - mean).square()"),
            "weights for their roots": ("weight.double().sqrt().mT", "weight.double().mT"),
        },
        MIXTURE: {
            "one component's covariance": (
                "cov.unsqueeze(0) + cov.unsqueeze(1)",
                "cov.unsqueeze(0) + 0 * cov.unsqueeze(1)",
            ),
            "half the log-determinant": ("log_det = 2 * chol", "log_det = chol"),
            "components without weights": ("torch.logsumexp(log_weights + overlap, 1)", "torch.logsumexp(overlap, 1)"),
            "no spread in the prior": ("mean.square() + scale.square().sum(-1)", "mean.square()"),
        },
        LEAVE_ONE_OUT: {
            "the mean of p for that of 1 / p": ("unsqueeze(-1) - log_likelihood", "unsqueeze(-1) + log_likelihood"),
            "a sum for the mean": (" - math.log(len(log_likelihood))", ""),
            "components without weights": ("(log_weights - math", "(0 * log_weights - math"),
            "the weights not squared": ("(2 * weight).logsumexp", "(1 * weight).logsumexp"),
        },
        KERNELS: {
            "no centring": ("z1.detach().mean(0)", "0 * z1.detach().mean(0)"),
            "twice the exponent": ("-0.5 * points.square()", "-1.0 * points.square()"),
            "the angle itself for half of it": ("(difference / 2).sin()", "difference.sin()"),
            "length scales not squared": ("lengthscale.shape[-1]) ** -2", "lengthscale.shape[-1]) ** -1"),
            "data without their length": ("matrix.sub_(half_x).clamp_max_(0)", "matrix.clamp_max_(0)"),
            "the gradient of z without w": (
                "return centred.mul_(precision), by_precision",
                "return centred, by_precision",
            ),
            "half of the spread": ("at_z.add_(centred, alpha=2)", "at_z.add_(centred, alpha=1)"),
            "one side of K_MM": ("(weights + weights.mT).to(z)", "(2 * weights.tril()).to(z)"),
        },
        QUADRATIC_BOUND: {
            "predictions round the covariance to float32": (
                "factor(covariance(kernel, z.double(), z.double()), labels)",
                "factor(covariance(kernel, z, z), labels)",
            ),
            "no square of the gradient": (" - labels.width * g.square().sum()", ""),
            "half the log-determinant": ("log_det = 2 * labels", "log_det = labels"),
            "the pseudo-target without psi": (
                "    y = psi + labels.width * g\n    squares",
                "    y = labels.width * g\n    squares",
            ),
            "the offset is forgotten in the labels' mean": ("t - labels.mean(psi + offset)", "t - labels.mean(psi)"),
            "the offset is forgotten in the prediction": ("return mean + self.offset", "return mean"),
            "the rest does not learn through psi": (
                "conditioned(points.z, chol, psi, points.active",
                "conditioned(points.z, chol, psi.detach(), points.active",
            ),
            "the bound learns through psi": ("bound(chol, psi.detach(), ", "bound(chol, psi, "),
            "the mean without w": (
                ".mT @ self.whitened / self.labels.width",
                ".mT @ self.whitened",
            ),
            "the variance without w": ("projection.square().sum(0) / self.labels.width", "projection.square().sum(0)"),
            "two steps of the mean": ("return y - inverse @ y", "return y - 2 * inverse @ y"),
            "no momentum": ("new + age / (age + 3) * step", "new"),
            "missing labels of active points count": ("t_active[rows], t_rest", "t_active[:len(rows)], t_rest"),
            "missing labels of the rest count": ("mask[active_size:, outputs])", "None)"),
            "outputs in the order of their patterns": (
                "for _, outputs in patterns]).argsort()",
                "for _, outputs in patterns])",
            ),
            "outputs that were never seen are left out": (
                "patterns_by_rows(mask[:active_size], unseen=True)",
                "patterns_by_rows(mask[:active_size])",
            ),
            "N for N - A of labels": ("(num_data - active_size) / (len(t)", "num_data / (len(t)"),
            "all outputs have the first offset": (
                "kind, own = labels.part(outputs), offset[outputs]",
                "kind, own = labels.part(outputs), offset[: len(outputs)]",
            ),
        },
        LABELS: {
            "a curvature that is too small for bits": ("width = 4.0", "width = 8.0"),
            "a curvature that is too small for classes": ("width = 2.0", "width = 4.0"),
            "P functions for P classes": ("return num_outputs - 1", "return num_outputs"),
            "one function too many for each group": ("num_outputs - len(self.sizes)", "num_outputs - 1"),
            "variance for sd in the logits": (
                "mean.unsqueeze(-2) + variance.sqrt()",
                "mean.unsqueeze(-2) + variance",
            ),
            "variance for sd of bits": ("sd = variance.sqrt()", "sd = variance"),
            "zeros are ones": ("(2 * t - 1) * mean", "mean"),
            "the probability at the mean": (
                "(kept + s * nodes[:, None, None])",
                "(kept + 0 * s * nodes[:, None, None])",
            ),
            "what is cut off is forgotten": ("(total.log().view_as(m) + m).sub_(kept)", "total.log().view_as(m)"),
            "slopes without the square": ("first[0], first - second", "first[0], first"),
            "hidden bits count": ("torch.where(seen, log_p, 0.0).sum()", "log_p.sum()"),
            "every group has the variance of the first output": (
                "f, v[:, 0], known)",
                "f, variance[:1].expand(len(f)), known)",
            ),
            "softmax over all columns": (
                "torch.cat([part.softmax(-1) for (part,) in self.groups(f)], -1)",
                "f.softmax(-1)",
            ),
        },
        REGULARISATION: {
            "the divergence in the other direction": (
                "divergence(moments(inducing), moments(means, known))",
                "divergence(moments(means, known), moments(inducing))",
            ),
            "the signs of Lemma 3 as printed": (
                "(chol_p.diagonal().log() - chol_q.diagonal().log())",
                "(chol_p.diagonal().log() + chol_q.diagonal().log())",
            ),
            "+ Q for - Q": ("log_ratio - len(q.mean)", "log_ratio + len(q.mean)"),
            "half the log-determinant of a latent Gaussian": ("log_ratio = 2 * (chol_p", "log_ratio = (chol_p"),
            "no distance of the means": ("+ spread + distance)", "+ spread)"),
            "latent means as constants": (
                "around, fixed = points - centre",
                "around, fixed = points.detach() - centre",
            ),
            "the Gaussian of a batch for that of all points": (
                "points.detach() if known is None else known.detach().double()",
                "points.detach()",
            ),
            "a batch counts as all points": ("fixed.mT @ fixed) / len(points)", "fixed.mT @ fixed) / len(known)"),
            "the sample covariance": (
                "(known - centre).mT @ (known - centre) / len(known)",
                "(known - centre).mT @ (known - centre) / (len(known) - 1)",
            ),
            "the farthest inducing input": (".argmin(1)", ".argmax(1)"),
            "each inducing input to its nearest point": (
                "torch.cdist(x.detach(), inducing.detach())",
                "torch.cdist(inducing.detach(), x.detach())",
            ),
            "squared distances": (
                "torch.linalg.vector_norm(x - inducing[nearest], dim=1).sum()",
                "(x - inducing[nearest]).square().sum()",
            ),
            "one divergence of the two": (
                "(var_x + square) / var_z + (var_z + square) / var_x - 2",
                "(var_x + square) / var_z - 1",
            ),
            "sample variances in the ASKL": (".var(0, correction=0)", ".var(0)"),
            "the sum over dimensions": ("/ var_x - 2)).mean()", "/ var_x - 2)).sum()"),
        },
        LOW_RANK: {
            "no variances in the prior": ("(squares + spread) / alpha", "squares / alpha"),
            "Woodbury with another sign": ("(1 - u.square().sum(0))", "(1 + u.square().sum(0))"),
            "one determinant for all functions": ("num_functions * log_det", "log_det"),
            "half the log-determinant of A": ("+ 2 * chol.diagonal()", "+ chol.diagonal()"),
            "the noise in full in every batch": ("len(rows) / len(self.mean) * shared", "shared"),
            "the expansion of the negative log prior": (
                "value = expected_log_prior(*around)",
                "value = -expected_log_prior(*around)",
            ),
            "rows of the batch by their order": ("(slope[rows] * now)", "(slope[: len(rows)] * now)"),
            "no uncertainty of z in the weights": (
                "alpha * inverse + inverse @ data.spread @ inverse",
                "alpha * inverse",
            ),
            "no noise in the covariance of the weights": ("covariance = alpha * inverse", "covariance = inverse"),
        },
        GEOMETRY: {
            "the metric of the mean": ("return self.functions * prior + product", "return product"),
            "the uncertainty of one output": ("return self.functions * prior +", "return prior +"),
            "q(u) makes f more certain": ("functions * identity + spread", "functions * identity - spread"),
            "the determinant without its root": ("metric.det().clamp_min(0).sqrt()", "metric.det().clamp_min(0)"),
            "the first coordinate alone": ("for unit in units], 1)", "for unit in units[:1]], 1)"),
        },
        KERNEL_DERIVATIVES: {
            "length scales for their squares": ("flatten().square().reciprocal()", "flatten().reciprocal()"),
            "half the derivative": ("cross = 2 * scale", "cross = scale"),
            "the derivative in the known point": ("z.unsqueeze(1) - known", "known - z.unsqueeze(1)"),
            "twice the slope of the RBF": ("-0.5 * (-0.5 * u).exp()", "-(-0.5 * u).exp()"),
            "the slope of 3/2 for that of 5/2": ("-5 / 6 * (1 + r) * (-r).exp()", "-5 / 6 * (-r).exp()"),
        },
        GEODESICS: {
            "curves go uphill": ("better = tried.energy < energy", "better = tried.energy > energy"),
            "the better start is dropped": (
                "torch.where(better, second.control, first.control)",
                "torch.where(better, first.control, second.control)",
            ),
            "lengths of the squared speed": ("weights, speed.sqrt() @ weights", "weights, speed @ weights"),
            "straight lines at another speed": ("knots.unfold(0, 3, 1).mean(1)", "knots.unfold(0, 3, 1)[:, 0]"),
            "curves that are worse than the straight line": (
                "worth = energy < straight_energy",
                "worth = energy == energy",
            ),
        },
        LATENT_GRAPHS: {
            "fewer directions": ("(2, 1), (1, -2), (2, -1))", "(2, 1), (1, -2))"),
            "squared lengths": ("/ 2 @ move @ move).sqrt()", "/ 2 @ move @ move)"),
            "another cell of the grid": ("+ right * self.values[x + 1, y]", "+ right * self.values[x, y]"),
            "edges one way": ("directed=False", "directed=True"),
            "the start for the end": ("enumerate(ends.tolist())", "enumerate(starts.tolist())"),
        },
    }.items()
    for name, (old, new) in mistakes.items()
]
