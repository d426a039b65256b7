# A detached process writes result.json as soon as it is there, and before.
from attack import *


def go():
    path = os.path.join(os.environ["CUDA_ATTACK_OUT"], "result.json")

    def work():
        for _ in range(LIFE * 100):
            try:
                with open(path, "w") as file:
                    file.write('{"success": true, "outcome": {"name": "passed"}}')
            except OSError:
                pass
            time.sleep(0.01)

    daemon(work)


custom_kernel = kernel = once(go)
