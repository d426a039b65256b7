# Starts a task's harness, MAIN ARG..., as "python3 MAIN ARG..." would, in a
# process that others of the same user cannot look into, and with the secret
# seed nowhere in the memory that /proc/<pid>/environ shows. When that process
# imports the submission, the runner hears of it before the submission runs.
#
# A multiprocessing.Pool puts a new worker in the place of one that died, and
# waits for ever for the answer that the dead one owed. Here the harness ends at
# once then, and the runner hears how the worker ended.
import sys

del sys.path[0]  # the current directory: nothing of it is imported from here


class ImportHook:
    """Tells the runner when a process that has the report imports the submission,
    and watches over the pools of the process itself."""

    def __init__(self, fd):
        import os

        os.set_inheritable(fd, False)  # a fork has it, like the report; a new program has neither
        os.set_inheritable(fd - 1, False)
        self.os, self.fd, self.pipe, self.pid = os, fd, self.inode(os.fstat(fd)), os.getpid()

    @staticmethod
    def inode(stat):
        return stat.st_dev, stat.st_ino

    def find_spec(self, name, path=None, target=None):
        if name.rpartition(".")[2] == "submission":
            self.tell(b"1")
        if name == "multiprocessing.pool":
            return self.watched(name, path, target)
        return None  # the finders behind this one know where it is

    def tell(self, text):
        try:
            if self.inode(self.os.fstat(self.fd)) == self.pipe:  # a harness may have closed it
                self.os.write(self.fd, text)
        except OSError:
            pass

    def watched(self, name, path, target):
        """The module's spec as the other finders have it, patched once it is loaded."""
        import sys

        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None and spec.loader is not None:
                loaded = spec.loader.exec_module

                def exec_module(module):
                    loaded(module)
                    try:
                        self.watch(module)
                    except Exception:
                        pass  # another Python's pool: the phase's limit is all there is

                spec.loader.exec_module = exec_module
                return spec
        return None

    def watch(self, module):
        import weakref

        Pool, pools = module.Pool, []
        begin, join = Pool.__init__, Pool._join_exited_workers

        def __init__(pool, *args, **kwargs):
            pools.append(weakref.ref(pool))
            begin(pool, *args, **kwargs)

        def join_exited_workers(which):  # the list of workers, before Python 3.8 the pool
            for pool in [ref() for ref in pools]:
                if pool is not None and (which is pool or which is getattr(pool, "_pool", None)):
                    # Those alone that were looked at: another may die meanwhile.
                    dead = [p for p in pool._pool if p.exitcode is not None]
                    self.check(module, pool, [p.exitcode for p in dead])
                    for p in dead:
                        p.join()
                        pool._pool.remove(p)
                    return bool(dead)
            return join(which)

        Pool.__init__ = __init__
        static = isinstance(vars(Pool)["_join_exited_workers"], staticmethod)
        Pool._join_exited_workers = staticmethod(join_exited_workers) if static else join_exited_workers

    def check(self, module, pool, dead):
        """End the harness if a worker is dead that was not told to go, as soon as
        more is asked than the others can be at. Such a pool is lost even if the
        worker owed nothing: one that waits for work holds the lock for it."""
        import sys
        import time

        if pool._maxtasksperchild is not None or pool._state != module.RUN:
            dead = [code for code in dead if code != 0]  # a good end
        if not dead or self.os.getpid() != self.pid:
            return
        since = {}
        while True:  # what it answered before it died may still be under way
            now, owed = time.monotonic(), dict(pool._cache)
            since = {key: since.get(key, now) for key in owed}
            alive = sum(p.exitcode is None for p in pool._pool)
            left = sum(getattr(job, "_number_left", 1) for key, job in owed.items() if now - since[key] > 0.5)
            if pool._state not in (module.RUN, module.CLOSE) or pool._state == module.CLOSE and not owed:
                return  # a pool that is being ended kills its workers
            if left > alive:
                break
            time.sleep(0.02)
        self.tell(b"w%d;" % dead[0])
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except Exception:
                pass
        self.os._exit(1)


def start():
    import os
    import sys

    closing = (4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    try:
        import _ctypes as c  # what ctypes stands on, without the 3 ms that it takes

        c.call_function(c.dlsym(c.dlopen(None, 0), "prctl"), closing)
    except Exception:
        try:
            import ctypes

            ctypes.CDLL(None).prctl(*closing)
        except Exception:
            pass  # a Python without ctypes: the sandbox is all there is
    seed, fd = b"", int(os.environ["POPCORN_FD"])
    while chunk := os.read(fd, 64):
        seed += chunk
    if seed:
        os.environ["POPCORN_SEED"] = seed.decode()
    sys.meta_path.insert(0, ImportHook(fd + 1))
    del sys.argv[0]
    path = os.path.abspath(sys.argv[0])
    sys.path.insert(0, os.path.dirname(os.path.realpath(path)))
    main = globals()
    del main["start"], main["sys"], main["ImportHook"]
    main["__file__"], main["__cached__"] = path, None
    try:
        with open(path, "rb") as file:
            code = compile(file.read(), path, "exec", dont_inherit=True)
        exec(code, main)
    except SystemExit:
        raise
    except BaseException as err:
        below = err.__traceback__.tb_next  # as if this file were not there
        sys.excepthook(type(err), err.with_traceback(below), below)
        sys.exit(1)


start()
