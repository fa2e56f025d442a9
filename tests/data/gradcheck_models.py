"""Layers, losses and physics with gradients written by hand, right ones and such as people write.

Each model is a function of its mistakes: `MODELS[name](mistake)` returns f, the inputs and a vjp,
which is right for None. `MISTAKES` says which mistakes there are, and of which inputs.
"""

import numpy as np

MODELS = {}
MISTAKES = []


def model(**mistakes):
    """Note a model, and of each mistake the inputs by which the gradient is wrong then."""

    def note(build):
        MODELS[build.__name__] = build
        MISTAKES.extend((build.__name__, name, inputs) for name, inputs in mistakes.items())
        return build

    return note


def drawn(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def softmax(x, axis=-1):
    e = np.exp(x - x.max(axis=axis, keepdims=True))
    return e / e.sum(axis=axis, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@model(
    no_term_of_variance={0},
    no_term_of_mean={0},
    mean_in_place_of_sum={1, 2},
    other_axis={0},
    no_eps={0},
)
def layer_norm(mistake):
    def normal(x):
        centered = x - x.mean(axis=-1, keepdims=True)
        scale = 1 / np.sqrt((centered**2).mean(axis=-1, keepdims=True) + 1e-5)
        return centered * scale, scale

    def f(x, gain, bias):
        return gain * normal(x)[0] + bias

    def vjp(x, gain, bias, w):
        z, scale = normal(x)
        if mistake == "no_eps":
            scale = 1 / x.std(axis=-1, keepdims=True)
        g = w * gain
        axis = 0 if mistake == "other_axis" else -1
        mean = 0 if mistake == "no_term_of_mean" else g.mean(axis=axis, keepdims=True)
        of_variance = z * (g * z).mean(axis=-1, keepdims=True)
        if mistake == "no_term_of_variance":
            of_variance = 0
        total = np.mean if mistake == "mean_in_place_of_sum" else np.sum
        return scale * (g - mean - of_variance), total(w * z, axis=0), total(w, axis=0)

    return f, (3 * drawn(4, 6), drawn(6, seed=1), drawn(6, seed=2)), vjp


@model(means_by_channel={0}, gain_by_group={1})
def group_norm(mistake):
    def split(x):
        return x.reshape(2, 2, 2, 9)

    def normal(x):
        g = split(x)
        c = g - g.mean(axis=(2, 3), keepdims=True)
        s = 1 / np.sqrt((c**2).mean(axis=(2, 3), keepdims=True) + 1e-3)
        return c * s, s

    def f(x, gain, bias):
        z = normal(x)[0].reshape(x.shape)
        return gain[:, None, None] * z + bias[:, None, None]

    def vjp(x, gain, bias, w):
        z, s = normal(x)
        g = split(w * gain[:, None, None])
        axes = 3 if mistake == "means_by_channel" else (2, 3)
        gx = g - g.mean(axis=axes, keepdims=True) - z * (g * z).mean(axis=axes, keepdims=True)
        by_gain = (w * z.reshape(x.shape)).sum(axis=(0, 2, 3))
        if mistake == "gain_by_group":
            by_gain = np.repeat(by_gain.reshape(2, 2).sum(axis=1), 2)
        return (s * gx).reshape(x.shape), by_gain, w.sum(axis=(0, 2, 3))

    return f, (drawn(2, 4, 3, 3), drawn(4, seed=1), drawn(4, seed=2)), vjp


@model(unbiased={0}, as_in_evaluation={0})
def batch_norm(mistake):
    def f(x):
        return (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0) + 1e-5)

    def vjp(x, w):
        n = len(x)
        s = 1 / np.sqrt(x.var(axis=0) + 1e-5)
        z = (x - x.mean(axis=0)) * s
        if mistake == "as_in_evaluation":
            return w * s
        if mistake == "unbiased":
            return s * (w - w.mean(axis=0) - z * (w * z).sum(axis=0) / (n - 1))
        return s * (w - w.mean(axis=0) - z * (w * z).mean(axis=0))

    return f, drawn(7, 3), vjp


def windows(x, k):
    return np.lib.stride_tricks.sliding_window_view(np.pad(x, ((0, 0), (1, 1), (1, 1))), k, (1, 2))


@model(kernel_not_turned={0}, border_left_out={0}, bias_by_mean={2}, no_sum_over_outputs={0})
def conv2d(mistake):
    def f(x, kernel, bias):
        return np.einsum("cyxij,ocij->oyx", windows(x, (3, 3)), kernel) + bias[:, None, None]

    def vjp(x, kernel, bias, w):
        turned = kernel if mistake == "kernel_not_turned" else kernel[:, :, ::-1, ::-1]
        if mistake == "no_sum_over_outputs":
            turned = turned * (np.arange(len(turned)) == 0)[:, None, None, None]
        gx = np.einsum("oyxij,ocij->cyx", windows(w, (3, 3)), turned)
        if mistake == "border_left_out":
            gx[:, 0] = 0
        gk = np.einsum("cyxij,oyx->ocij", windows(x, (3, 3)), w)
        total = np.mean if mistake == "bias_by_mean" else np.sum
        return gx, gk, total(w, axis=(1, 2))

    return f, (drawn(2, 5, 4), drawn(3, 2, 3, 3, seed=1), drawn(3, seed=2)), vjp


@model(no_scale={0, 1}, softmax_as_elementwise={0, 1}, other_softmax_axis={0, 1}, transposed={2})
def attention(mistake):
    def f(q, k, v):
        return softmax(q @ k.T / np.sqrt(q.shape[1])) @ v

    def vjp(q, k, v, w):
        scale = 1 if mistake == "no_scale" else 1 / np.sqrt(q.shape[1])
        p = softmax(q @ k.T / np.sqrt(q.shape[1]))
        gp = w @ v.T
        axis = 0 if mistake == "other_softmax_axis" else 1
        total = (gp * p).sum(axis=axis, keepdims=True)
        if mistake == "softmax_as_elementwise":
            total = gp * p
        gs = p * (gp - total) * scale
        return gs @ k, gs.T @ q, (p if mistake == "transposed" else p.T) @ w

    return f, (drawn(5, 3), drawn(5, 3, seed=1), drawn(5, 2, seed=2)), vjp


@model(
    cell_forgotten={0, 1, 2, 3},
    new_cell_for_old={0, 1, 3},
    slope_of_sigmoid_for_tanh={0, 1, 3},
    gates_in_another_order={0, 1, 3},
)
def lstm_cell(mistake):
    def gates(x, h, c, m):
        i, j, o, g = np.split(np.concatenate([x, h], axis=1) @ m, 4, axis=1)
        i, j, o, g = sigmoid(i), sigmoid(j), sigmoid(o), np.tanh(g)
        return i, j, o, g, j * c + i * g

    def f(x, h, c, m):
        *_, o, _, new = gates(x, h, c, m)
        return o * np.tanh(new), new

    def vjp(x, h, c, m, w):
        i, j, o, g, new = gates(x, h, c, m)
        gc = w[0] * o * (1 - np.tanh(new) ** 2)
        if mistake != "cell_forgotten":
            gc = gc + w[1]
        old = new if mistake == "new_cell_for_old" else c
        slope = g * (1 - g) if mistake == "slope_of_sigmoid_for_tanh" else 1 - g**2
        each = [
            gc * g * i * (1 - i),
            gc * old * j * (1 - j),
            w[0] * np.tanh(new) * o * (1 - o),
            gc * i * slope,
        ]
        if mistake == "gates_in_another_order":
            each = [each[0], each[2], each[1], each[3]]
        z = np.concatenate(each, axis=1)
        both = z @ m.T
        own = np.concatenate([x, h], axis=1).T @ z
        return both[:, : x.shape[1]], both[:, x.shape[1] :], gc * j, own

    inputs = drawn(2, 3), drawn(2, 2, seed=1), drawn(2, 2, seed=2), drawn(5, 8, seed=3)
    return f, inputs, vjp


@model(no_product_with_reset={1}, twice_the_old_state={1})
def gru_cell(mistake):
    def parts(x, h, a, b):
        r, z = np.split(sigmoid(np.concatenate([x, h]) @ a), 2)
        n = np.tanh(np.concatenate([x, r * h]) @ b)
        return r, z, n

    def f(x, h, a, b):
        _, z, n = parts(x, h, a, b)
        return (1 - z) * n + z * h

    def vjp(x, h, a, b, w):
        r, z, n = parts(x, h, a, b)
        k = len(x)
        pre = w * (1 - z) * (1 - n**2)
        of_n = b @ pre
        gr = of_n[k:] * h * r * (1 - r)
        gz = w * (h - n) * z * (1 - z)
        gates = np.concatenate([gr, gz])
        of_gates = a @ gates
        inner = of_n[k:] * (1 if mistake == "no_product_with_reset" else r)
        gh = (2 if mistake == "twice_the_old_state" else 1) * w * z + inner + of_gates[k:]
        return (
            of_n[:k] + of_gates[:k],
            gh,
            np.outer(np.concatenate([x, h]), gates),
            np.outer(np.concatenate([x, r * h]), pre),
        )

    return f, (drawn(3), drawn(2, seed=1), drawn(5, 4, seed=2), drawn(5, 2, seed=3)), vjp


@model(sum_in_place_of_mean={0}, padding_counted={0}, no_smoothing={0})
def cross_entropy(mistake):
    target = np.array([2, 0, -1, 1, 2])
    kept = target >= 0

    def smooth(classes, share=0.1):
        return (1 - share) * np.eye(classes)[target] + share / classes

    def f(x):
        logs = x - np.log(np.exp(x).sum(axis=1, keepdims=True))
        return -(smooth(x.shape[1]) * logs)[kept].sum() / kept.sum()

    def vjp(x, w):
        wanted = smooth(x.shape[1], 0 if mistake == "no_smoothing" else 0.1)
        g = w * (softmax(x) - wanted) / kept.sum()
        if mistake == "sum_in_place_of_mean":
            g = g * kept.sum()
        if mistake != "padding_counted":
            g[~kept] = 0
        return g

    return f, drawn(5, 3), vjp


@model(no_clip={0}, clip_of_the_wrong_side={0})
def huber(mistake):
    def f(x):
        size = np.abs(x)
        return np.where(size < 1, x * x / 2, size - 0.5)

    def vjp(x, w):
        if mistake == "no_clip":
            return w * x
        if mistake == "clip_of_the_wrong_side":
            return w * np.minimum(x, 1)
        return w * np.clip(x, -1, 1)

    return f, np.array([-3.0, -0.7, 0.2, 0.9, 1.1, 4.0]), vjp


@model(one_step_alone={0, 1}, not_transposed={0, 1})
def fixed_point(mistake):
    def solve(a, x):
        z = np.zeros(len(x))
        for _ in range(200):
            z = np.tanh(a @ z + x)
        return z

    def vjp(a, x, w):
        z = solve(a, x)
        slope = 1 - z * z
        matrix = np.eye(len(x)) - slope[:, None] * a
        if mistake != "not_transposed":
            matrix = matrix.T
        u = w if mistake == "one_step_alone" else np.linalg.solve(matrix, w)
        return np.outer(u * slope, z), u * slope

    return solve, (0.25 * drawn(4, 4), drawn(4, seed=1)), vjp


@model(last_stage_left_out={0, 1}, half_a_step_for_one={0, 1}, parameters_of_first_stage={1})
def runge_kutta_step(mistake):
    step = 0.1

    def slope(y, p):
        return np.array([p[0] * y[0] - p[1] * y[0] * y[1], p[2] * y[0] * y[1] - p[3] * y[1]])

    def pulled(y, p, w):
        by_y = np.array([[p[0] - p[1] * y[1], -p[1] * y[0]], [p[2] * y[1], p[2] * y[0] - p[3]]])
        by_p = np.array([[y[0], -y[0] * y[1], 0, 0], [0, 0, y[0] * y[1], -y[1]]])
        return w @ by_y, w @ by_p

    def stages(y, p):
        one = slope(y, p)
        two = slope(y + step / 2 * one, p)
        three = slope(y + step / 2 * two, p)
        return one, two, three, slope(y + step * three, p)

    def f(y, p):
        one, two, three, four = stages(y, p)
        return y + step / 6 * (one + 2 * two + 2 * three + four)

    def vjp(y, p, w):
        one, two, three, _ = stages(y, p)
        share = 0 if mistake == "last_stage_left_out" else step / 6
        a4, p4 = pulled(y + step * three, p, share * w)
        whole = step / 2 if mistake == "half_a_step_for_one" else step
        a3, p3 = pulled(y + step / 2 * two, p, step / 3 * w + whole * a4)
        a2, p2 = pulled(y + step / 2 * one, p, step / 3 * w + step / 2 * a3)
        a1, p1 = pulled(y, p, step / 6 * w + step / 2 * a2)
        by_p = p1 if mistake == "parameters_of_first_stage" else p1 + p2 + p3 + p4
        return w + a1 + a2 + a3 + a4, by_p

    return f, (np.array([2.0, 1.0]), np.array([1.1, 0.4, 0.3, 0.9])), vjp


@model(gain_held_constant={1}, sign_of_innovation={0, 2})
def kalman_update(mistake):
    h = np.array([[1.0, 0.5, 0.0], [0.0, 1.0, -0.3]])
    noise = np.array([[0.5, 0.1], [0.1, 0.3]])

    def f(m, p, z):
        return m + p @ h.T @ np.linalg.solve(h @ p @ h.T + noise, z - h @ m)

    def vjp(m, p, z, w):
        s = h @ p @ h.T + noise
        u = np.linalg.solve(s, z - h @ m)
        back = np.linalg.solve(s.T, h @ p.T @ w)
        by_p = np.outer(w, h.T @ u)
        if mistake != "gain_held_constant":
            by_p = by_p - np.outer(h.T @ back, h.T @ u)
        sign = -1 if mistake == "sign_of_innovation" else 1
        return w - sign * h.T @ back, by_p, sign * back

    a = drawn(3, 3)
    return f, (drawn(3, seed=1), a @ a.T + np.eye(3), drawn(2, seed=2)), vjp


@model(no_trace={1}, trace_not_halved={1}, length_of_a_square={1}, sign_of_data={0})
def gaussian_process(mistake):
    t = np.linspace(0, 3, 8)
    squares = (t[:, None] - t) ** 2

    def covariance(p):
        return p[1] ** 2 * np.exp(-squares / (2 * p[0] ** 2)) + p[2] ** 2 * np.eye(len(t))

    def f(y, p):
        k = covariance(p)
        return -0.5 * (y @ np.linalg.solve(k, y) + np.linalg.slogdet(2 * np.pi * k)[1])

    def vjp(y, p, w):
        k = covariance(p)
        a, inverse = np.linalg.solve(k, y), np.linalg.inv(k)
        shape = np.exp(-squares / (2 * p[0] ** 2))
        power = 2 if mistake == "length_of_a_square" else 3
        each = [
            p[1] ** 2 * shape * squares / p[0] ** power,
            2 * p[1] * shape,
            2 * p[2] * np.eye(len(t)),
        ]
        share = {"no_trace": 0, "trace_not_halved": 1}.get(mistake, 0.5)
        by_p = [0.5 * a @ d @ a - share * np.trace(inverse @ d) for d in each]
        return w * a * (1 if mistake == "sign_of_data" else -1), w * np.array(by_p)

    return f, (drawn(8), np.array([0.8, 1.3, 0.4])), vjp


@model(ends_as_if_inside={0}, second_derivatives_held={0})
def natural_spline(mistake):
    n, at = 7, np.array([0.3, 1.5, 2.25, 4.9, 5.6])
    left = at.astype(int)
    b = at - left
    a = 1 - b
    bends = np.zeros((n - 2, n))
    for k in range(n - 2):
        bends[k, k : k + 3] = 1, -2, 1
    system = (np.diag([4.0] * (n - 2)) + np.eye(n - 2, k=1) + np.eye(n - 2, k=-1)) / 6
    curvature = np.zeros((n, n))
    curvature[1:-1] = np.linalg.solve(system, bends)
    wrong = curvature.copy()
    wrong[1] = bends[0]

    def f(y):
        m = curvature @ y
        value = a * y[left] + b * y[left + 1]
        return value + ((a**3 - a) * m[left] + (b**3 - b) * m[left + 1]) / 6

    def vjp(y, w):
        g, gm = np.zeros(n), np.zeros(n)
        np.add.at(g, left, a * w)
        np.add.at(g, left + 1, b * w)
        np.add.at(gm, left, (a**3 - a) * w / 6)
        np.add.at(gm, left + 1, (b**3 - b) * w / 6)
        if mistake == "second_derivatives_held":
            return g
        return g + (wrong if mistake == "ends_as_if_inside" else curvature).T @ gm

    return f, drawn(n), vjp


@model(entropy_left_out={0}, plan_transposed={0})
def sinkhorn(mistake):
    n, strength = 5, 0.5
    a, b = np.full(n, 1 / n), softmax(drawn(n, seed=3))

    def plan(cost):
        kernel = np.exp(-cost / strength)
        v = np.ones(n)
        for _ in range(500):
            u = a / (kernel @ v)
            v = b / (kernel.T @ u)
        return u[:, None] * kernel * v

    def f(cost):
        p = plan(cost)
        return (p * cost).sum() + strength * (p * (np.log(p) - 1)).sum()

    def vjp(cost, w):
        p = plan(cost)
        if mistake == "entropy_left_out":
            return w * p * (1 - (cost - (p * cost).sum()) / strength)
        return w * (p.T if mistake == "plan_transposed" else p)

    return f, np.random.default_rng(0).uniform(0, 2, (n, n)), vjp


@model(same_sign_for_both={0}, power_of_seven={0, 1}, no_image={0, 1}, no_box={1})
def lennard_jones(mistake):
    def pairs(x, box):
        i, j = np.triu_indices(len(x), 1)
        d = x[i] - x[j]
        images = np.round(d / box)
        return i, j, d - box * images, images

    def f(x, box):
        r = (pairs(x, box)[2] ** 2).sum(axis=1)
        return 4 * (r**-6 - r**-3).sum()

    def vjp(x, box, w):
        i, j, d, images = pairs(x, box)
        if mistake == "no_image":
            d = x[i] - x[j]
        r = (d**2).sum(axis=1)
        attraction = r**-3.5 if mistake == "power_of_seven" else r**-4
        force = 4 * (-12 * r**-7 + 6 * attraction)[:, None] * d
        g = np.zeros_like(x)
        np.add.at(g, i, force)
        np.add.at(g, j, force if mistake == "same_sign_for_both" else -force)
        by_box = -(force * images).sum(axis=0)
        return w * g, w * (0 if mistake == "no_box" else 1) * by_box

    x = np.array([[0.2, 0.3, 0.1], [1.4, 0.4, 0.2], [0.5, 2.6, 1.3], [2.7, 1.5, 2.8]])
    return f, (x, np.array([3.0, 3.2, 3.1])), vjp


@model(shifts_not_turned={0, 1}, viscosity_twice={0, 1}, own_velocity_alone={0, 1}, first_row={0})
def advection_and_diffusion(mistake):
    viscosity, step = 0.05, 0.1

    def ahead(q, axis):
        return np.roll(q, -1, axis)

    def behind(q, axis):
        return np.roll(q, 1, axis)

    def f(u, v):
        found = []
        for q in (u, v):
            carried = u * (ahead(q, 0) - behind(q, 0)) / 2 + v * (ahead(q, 1) - behind(q, 1)) / 2
            spread = sum(ahead(q, k) + behind(q, k) - 2 * q for k in (0, 1))
            found.append(q + step * (viscosity * spread - carried))
        return tuple(found)

    def vjp(u, v, w):
        g = [np.zeros_like(u), np.zeros_like(v)]
        for k, (q, own) in enumerate(zip((u, v), w, strict=True)):
            for axis, speed in enumerate((u, v)):
                carried = step * own * speed / 2
                turned = ahead(carried, axis) - behind(carried, axis)
                g[k] += -turned if mistake == "shifts_not_turned" else turned
                if mistake != "own_velocity_alone" or axis == k:
                    g[axis] -= step * own * (ahead(q, axis) - behind(q, axis)) / 2
                spread = ahead(own, axis) + behind(own, axis) - 2 * own
                g[k] += (2 if mistake == "viscosity_twice" else 1) * step * viscosity * spread
            g[k] += own
        if mistake == "first_row":
            g[0][0] = w[0][0]
        return tuple(g)

    return f, (drawn(5, 4), drawn(5, 4, seed=1)), vjp


@model(conjugate={0, 1}, half={0, 1}, magnitude_alone={1})
def equaliser(mistake):
    # The mean of |x*h - d|**2, of complex numbers; half of its gradient is the engineers'.
    wanted = drawn(4) + 1j * drawn(4, seed=1)

    def f(x, h):
        return (np.abs(x * h - wanted) ** 2).mean()

    def vjp(x, h, w):
        e = 2 * w * (x * h - wanted) / len(x)
        gx, gh = np.conj(h) * e, np.conj(x) * e
        if mistake == "conjugate":
            gx, gh = np.conj(gx), np.conj(gh)
        if mistake == "half":
            gx, gh = gx / 2, gh / 2
        if mistake == "magnitude_alone":
            gh = np.abs(gh) + 0j
        return gx, gh

    inputs = drawn(4, seed=2) + 1j * drawn(4, seed=3), drawn(4, seed=4) + 1j * drawn(4, seed=5)
    return f, inputs, vjp


@model(not_scaled={0}, not_conjugated={0}, all_frequencies={0})
def spectrum(mistake):
    # A filter of real numbers, by rfft: all but the first and the last of its numbers count twice.
    gain = drawn(5) + 1j * drawn(5, seed=1)
    gain[[0, -1]] = gain[[0, -1]].real

    def f(x):
        return np.fft.irfft(gain * np.fft.rfft(x), len(x))

    def vjp(x, w):
        back = gain if mistake == "not_conjugated" else np.conj(gain)
        if mistake == "not_scaled":
            return len(x) * np.fft.irfft(back * np.fft.rfft(w), len(x))
        if mistake == "all_frequencies":
            back = back * np.array([1, 2, 2, 2, 1])
        return np.fft.irfft(back * np.fft.rfft(w), len(x))

    return f, drawn(8, seed=2), vjp


@model(sign={0}, not_transposed={0}, no_gradient_of_b={1})
def solve(mistake):
    def vjp(a, b, w):
        u = np.linalg.solve(a if mistake == "not_transposed" else a.T, w)
        x = np.linalg.solve(a, b)
        by_a = u @ x.T if mistake == "sign" else -u @ x.T
        if mistake == "not_transposed":
            return by_a, np.linalg.solve(a.T, w)
        return by_a, None if mistake == "no_gradient_of_b" else u

    return np.linalg.solve, (drawn(4, 4) + 3 * np.eye(4), drawn(4, 2, seed=1)), vjp


@model(as_of_unit_length={0}, sign_of_cross={0})
def rotation(mistake):
    # A vector turned by a quaternion of any length.

    def turned(unit, x):
        s, v = unit[0], unit[1:]
        return x + 2 * s * np.cross(v, x) + 2 * np.cross(v, np.cross(v, x))

    def f(q, x):
        return turned(q / np.linalg.norm(q), x)

    def vjp(q, x, w):
        size = np.linalg.norm(q)
        unit = q / size
        s, v = unit[0], unit[1:]
        sign = -1 if mistake == "sign_of_cross" else 1
        by_s = 2 * w @ np.cross(v, x)
        by_v = 2 * (
            sign * s * np.cross(x, w) + np.cross(np.cross(v, x), w) + np.cross(x, np.cross(w, v))
        )
        g = np.concatenate([[by_s], by_v])
        if mistake != "as_of_unit_length":
            g = (g - unit * (unit @ g)) / size
        return g, turned(unit * np.array([1, -1, -1, -1]), w)

    return f, (np.array([0.9, -0.4, 0.3, 1.2]), drawn(3)), vjp


@model(no_scale_of_grid={1}, x_and_y_swapped={1}, assigned={0}, nearest={0})
def bilinear(mistake):
    # Values of an image at points in [-1, 1]**2, as grid_sample with align_corners.

    def places(image, points):
        size = np.array(image.shape) - 1
        at = (points + 1) / 2 * size
        low = np.clip(at.astype(int), 0, size - 1)
        return low[:, 0], low[:, 1], *(at - low).T, size / 2

    def f(image, points):
        i, j, a, b, _ = places(image, points)
        top = (1 - b) * image[i, j] + b * image[i, j + 1]
        low = (1 - b) * image[i + 1, j] + b * image[i + 1, j + 1]
        return (1 - a) * top + a * low

    def vjp(image, points, w):
        i, j, a, b, scale = places(image, points)
        g = np.zeros_like(image)
        if mistake == "nearest":
            a, b = np.round(a), np.round(b)
        shares = (1 - a) * (1 - b), (1 - a) * b, a * (1 - b), a * b
        for (di, dj), share in zip(((0, 0), (0, 1), (1, 0), (1, 1)), shares, strict=True):
            if mistake == "assigned":
                g[i + di, j + dj] = share * w
            else:
                np.add.at(g, (i + di, j + dj), share * w)
        *_, a, b, scale = places(image, points)
        down = (1 - b) * (image[i + 1, j] - image[i, j])
        down = down + b * (image[i + 1, j + 1] - image[i, j + 1])
        right = (1 - a) * (image[i, j + 1] - image[i, j])
        right = right + a * (image[i + 1, j + 1] - image[i + 1, j])
        pair = (right, down) if mistake == "x_and_y_swapped" else (down, right)
        by_points = w[:, None] * np.stack(pair, axis=1)
        return g, by_points * (1 if mistake == "no_scale_of_grid" else scale)

    points = np.array([[-0.3, 0.2], [0.45, -0.75], [-0.35, 0.3], [0.9, 0.1]])
    return f, (drawn(4, 5), points), vjp


@model(repeats_assigned={0}, padding_counted={0})
def embedding(mistake):
    tokens = np.array([[1, 3, 0], [3, 3, 2]])
    kept = (tokens > 0)[..., None]

    def f(table):
        return table[tokens] * kept

    def vjp(table, w):
        g = np.zeros_like(table)
        if mistake == "repeats_assigned":
            g[tokens] = w * kept
        else:
            np.add.at(g, tokens, w if mistake == "padding_counted" else w * kept)
        return g

    return f, drawn(5, 2), vjp


@model(from_the_start={0}, divided_by_zero={0})
def cumulated_product(mistake):
    def vjp(x, w):
        g = np.zeros_like(x)
        y = np.cumprod(x)
        if mistake == "from_the_start":
            return np.cumsum(w * y) / x
        if mistake == "divided_by_zero":
            rest = np.cumsum((w * y)[::-1])[::-1]
            return np.divide(rest, x, out=np.zeros_like(x), where=x != 0)
        for k in range(len(x)):
            others = x.copy()
            others[k] = 1
            g[k] = (w * np.cumprod(others))[k:].sum()
        return g

    x = np.array([1.5, -0.7, 0.0 if mistake != "from_the_start" else 0.4, 2.0, 1.1])
    return np.cumprod, x, vjp


@model(last_step_left_out={0, 1}, weights_not_normalised={0, 1})
def hidden_markov(mistake):
    # The logarithm of a likelihood, by the forward algorithm, and its gradient by posteriors.

    def summed(x, axis):
        top = x.max(axis=axis, keepdims=True)
        return np.squeeze(top, axis) + np.log(np.exp(x - top).sum(axis=axis))

    def forward(change, seen):
        a = [seen[0]]
        for row in seen[1:]:
            a.append(row + summed(a[-1][:, None] + change, 0))
        return a

    def f(change, seen):
        return summed(forward(change, seen)[-1], 0)

    def vjp(change, seen, w):
        a = forward(change, seen)
        g, gs = np.zeros_like(change), np.zeros_like(seen)
        back = np.exp(a[-1]) if mistake == "weights_not_normalised" else softmax(a[-1])
        for k in range(len(seen) - 1, 0, -1):
            gs[k] = back
            share = softmax(a[k - 1][:, None] + change, 0) * back
            if not (mistake == "last_step_left_out" and k == len(seen) - 1):
                g += share
            back = share.sum(axis=1)
        gs[0] = back
        if mistake == "last_step_left_out":
            gs[-1] = 0
        return w * g, w * gs

    return f, (drawn(3, 3), drawn(5, 3, seed=1)), vjp


@model(no_softening={0, 1}, masses_of_others={1}, power={0})
def gravity(mistake):
    def f(x, m):
        d = x[:, None] - x
        r = np.sqrt((d**2).sum(axis=-1) + 0.01)
        return (m[None, :, None] * -d / r[..., None] ** 3).sum(axis=1)

    def vjp(x, m, w):
        d = x[:, None] - x
        soft = 0 if mistake == "no_softening" else 0.01
        r = np.sqrt((d**2).sum(axis=-1) + soft + (soft == 0) * np.eye(len(x)))[..., None]
        along = (d * w[:, None]).sum(axis=-1, keepdims=True)
        power = 4 if mistake == "power" else 5
        g = m[None, :, None] * (-w[:, None] / r**3 + 3 * d * along / r**power)
        by_m = (-along / r**3)[..., 0].sum(axis=1 if mistake == "masses_of_others" else 0)
        return g.sum(axis=1) - g.sum(axis=0), by_m

    return f, (2 * drawn(4, 2), np.array([1.0, 2.0, 0.5, 3.0])), vjp


@model(not_projected={0}, scale_of_all={0})
def weight_norm(mistake):
    def f(v, g):
        return g[:, None] * v / np.linalg.norm(v, axis=1, keepdims=True)

    def vjp(v, g, w):
        axis = None if mistake == "scale_of_all" else 1
        size = np.linalg.norm(v, axis=axis, keepdims=True)
        unit = v / np.linalg.norm(v, axis=1, keepdims=True)
        along = (w * unit).sum(axis=1)
        rest = w if mistake == "not_projected" else w - along[:, None] * unit
        return g[:, None] * rest / size, along

    return f, (drawn(3, 4), drawn(3, seed=1)), vjp


@model(negatives_left_out={0, 1}, keys_detached={1}, no_temperature={0, 1})
def contrastive_loss(mistake):
    temperature = 0.2

    def f(q, k):
        s = q @ k.T / temperature
        return (np.log(np.exp(s).sum(axis=1)) - np.diag(s)).mean()

    def vjp(q, k, w):
        p = softmax(q @ k.T / temperature)
        g = -np.eye(len(q)) if mistake == "negatives_left_out" else p - np.eye(len(q))
        g = w * g / len(q) / (1 if mistake == "no_temperature" else temperature)
        return g @ k, None if mistake == "keys_detached" else g.T @ q

    return f, (0.5 * drawn(4, 3), 0.5 * drawn(4, 3, seed=1)), vjp


@model(no_logarithm={0}, inverse_not_transposed={0})
def neo_hooke(mistake):
    # An elastic energy of gradients of a deformation.

    def f(a):
        j = np.linalg.det(a)
        return 0.5 * ((a**2).sum(axis=(1, 2)) - 3) - np.log(j) + 2 * np.log(j) ** 2

    def vjp(a, w):
        inverse = np.linalg.inv(a)
        if mistake != "inverse_not_transposed":
            inverse = inverse.swapaxes(1, 2)
        log = 0 if mistake == "no_logarithm" else np.log(np.linalg.det(a))[:, None, None]
        return w[:, None, None] * (a + (4 * log - 1) * inverse)

    return f, np.eye(3) + 0.2 * drawn(2, 3, 3), vjp


@model(vega_without_time={2}, theta_of_one_term={3}, delta_of_the_other={0})
def black_scholes(mistake):
    from scipy.special import ndtr

    strike = np.array([90.0, 100.0, 120.0])

    def terms(s, r, v, t):
        d = (np.log(s / strike) + (r + v * v / 2) * t) / (v * np.sqrt(t))
        return d, d - v * np.sqrt(t), strike * np.exp(-r * t)

    def f(s, r, v, t):
        one, two, paid = terms(s, r, v, t)
        return s * ndtr(one) - paid * ndtr(two)

    def vjp(s, r, v, t, w):
        one, two, paid = terms(s, r, v, t)
        density = np.exp(-one * one / 2) / np.sqrt(2 * np.pi)
        vega = s * density * (1 if mistake == "vega_without_time" else np.sqrt(t))
        theta = r * paid * ndtr(two)
        if mistake != "theta_of_one_term":
            theta = theta + s * density * v / (2 * np.sqrt(t))
        delta = ndtr(two if mistake == "delta_of_the_other" else one)
        return w @ delta, w @ (t * paid * ndtr(two)), w @ vega, w @ theta

    return f, (104.0, 0.03, 0.25, 0.75), vjp


@model(one_of_many={0})
def a_large_field(mistake):
    # One number of ten thousand is off by a ten-thousandth.

    def f(x):
        return np.sin(x).sum() + 0.5 * (x**2).sum()

    def vjp(x, w):
        g = w * (np.cos(x) + x)
        if mistake == "one_of_many":
            g[57, 31] *= 1 + 1e-4
        return g

    return f, np.random.default_rng(0).uniform(0.5, 2, (100, 100)), vjp


@model(only_large={0}, only_small={0}, not_at_zero={0})
def softplus_and_sinc(mistake):
    def f(x):
        return np.logaddexp(0, x), np.sinc(x / np.pi)

    def vjp(x, w):
        rise = sigmoid(x)
        with np.errstate(all="ignore"):
            fall = (x * np.cos(x) - np.sin(x)) / x**2
        fall = np.where(np.abs(x) < 1e-2, -x / 3 + x**3 / 30 - x**5 / 840, fall)
        if mistake == "only_large":
            rise = np.where(x > 8, 1, rise)
        if mistake == "only_small":
            fall = np.where(np.abs(x) < 1e-2, 0, fall)
        if mistake == "not_at_zero":
            fall = np.where(x == 0, np.nan, fall)
        return w[0] * rise + w[1] * fall

    return f, np.array([-30.0, -2.0, -3e-3, 0.0, 5e-3, 0.3, 4.0, 9.0, 25.0]), vjp


@model(input_in_single={0}, scale_lost={0})
def oscillation(mistake):
    # What a cast to float32 within a gradient does to fast waves.

    def f(x):
        return np.sin(1e3 * x) / 1e3

    def vjp(x, w):
        if mistake == "input_in_single":
            return w * np.cos((1e3 * x).astype(np.float32)).astype(float)
        if mistake == "scale_lost":
            return w * np.cos(1e3 * x).astype(np.float16).astype(float)
        return w * np.cos(1e3 * x)

    return f, np.linspace(0.1, 9, 7), vjp


@model(every_other_pair={0}, sign_of_the_second_half={0})
def rotary_embedding(mistake):
    angle = np.arange(3)[:, None] / 10.0 ** np.arange(2)

    def turned(x, angle):
        a, b = x[:, :2], x[:, 2:]
        c, s = np.cos(angle), np.sin(angle)
        return np.concatenate([a * c - b * s, a * s + b * c], axis=1)

    def f(x):
        return turned(x, angle)

    def vjp(x, w):
        if mistake == "sign_of_the_second_half":
            return turned(w, angle) * np.array([1, 1, -1, -1])
        g = turned(w, -angle)
        return turned(w, angle) if mistake == "every_other_pair" else g

    return f, drawn(3, 4), vjp


@model(as_of_full={0}, sign_of_diagonal={0})
def triangular_log_density(mistake):
    # That of a normal distribution with a lower triangular factor of the precision.

    def f(factor, x):
        low = np.tril(factor)
        return np.log(np.abs(np.diag(low))).sum() - 0.5 * ((low.T @ x) ** 2).sum()

    def vjp(factor, x, w):
        low = np.tril(factor)
        u = low.T @ x
        sign = -1 if mistake == "sign_of_diagonal" else 1
        g = sign * np.diag(1 / np.diag(low)) - np.outer(x, u)
        return w * (g if mistake == "as_of_full" else np.tril(g)), -w * low @ u

    return f, (drawn(4, 4) + 2 * np.eye(4), drawn(4, seed=1)), vjp


@model(divided_by_all={0}, border_counted_as_full={0})
def average_pool(mistake):
    # Means over three neighbours, of two at the ends.
    n = 7
    near = np.abs(np.subtract.outer(np.arange(n), np.arange(n))) <= 1
    means = near / near.sum(axis=1, keepdims=True)

    def vjp(x, w):
        if mistake == "divided_by_all":
            return near.T @ w / n
        return (near / 3 if mistake == "border_counted_as_full" else means).T @ w

    return lambda x: means @ x, drawn(n), vjp


@model(matrix_for_its_exponential={0})
def exponential(mistake):
    # That of a matrix; its derivative is not the product with it, unless both commute.
    import scipy.linalg

    def vjp(a, w):
        if mistake == "matrix_for_its_exponential":
            return scipy.linalg.expm(a).T @ w
        return scipy.linalg.expm_frechet(a.T, w, compute_expm=False)

    return scipy.linalg.expm, drawn(3, 3), vjp


@model(missing_overlap={0}, mean_of_batches={0})
def dice_loss(mistake):
    wanted = np.random.default_rng(1).integers(0, 2, (3, 8)).astype(float)

    def f(x):
        p = sigmoid(x)
        return (1 - (2 * (p * wanted).sum(axis=1) + 1) / (p + wanted + 1 / 8).sum(axis=1)).sum()

    def vjp(x, w):
        p = sigmoid(x)
        top, low = 2 * (p * wanted).sum(axis=1) + 1, (p + wanted + 1 / 8).sum(axis=1)
        g = top[:, None] / low[:, None] ** 2
        if mistake != "missing_overlap":
            g = g - 2 * wanted / low[:, None]
        return w * g * p * (1 - p) / (len(x) if mistake == "mean_of_batches" else 1)

    return f, drawn(3, 8), vjp
