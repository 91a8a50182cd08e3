"""NumPy and SciPy, with threads around them."""
import os
import threading

import numpy
import scipy.integrate
import scipy.linalg
import scipy.optimize
import scipy.sparse.linalg
import scipy.stats

a = numpy.random.default_rng(1).random((400, 400))
scipy.linalg.lu(a)
numpy.linalg.eig(a[:100, :100])
numpy.fft.fft(a)
threads = [threading.Thread(target=lambda: a @ a) for _ in range(3)]
[t.start() for t in threads]
[t.join() for t in threads]
scipy.optimize.minimize(lambda x: (x ** 2).sum(), [1.0, 2.0])
scipy.integrate.quad(lambda x: x * x, 0, 1)
scipy.stats.norm.fit(a[0])
scipy.sparse.linalg.spsolve(scipy.sparse.eye(10, format="csc"), numpy.ones(10))
os.chdir("/work")
numpy.save("a.npy", a)
assert numpy.load("a.npy", mmap_mode="r").shape == (400, 400)
print("arrays.py: done", numpy.__version__)
