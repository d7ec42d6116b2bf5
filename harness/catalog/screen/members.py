"""Tables of Python names that trigger rules of the screen."""

from __future__ import annotations

from collections.abc import Mapping


def _by_member(table: Mapping[str, str]) -> dict[str, str]:
    return {member: rule for rule, members in table.items() for member in members.split()}


MEMBERS: Mapping[str, str] = _by_member(
    {
        "introspection": "sys._getframe sys._current_frames sys.modules inspect.currentframe inspect.stack "
        "inspect.trace inspect.getouterframes inspect.getinnerframes inspect.getmembers gc.get_objects "
        "gc.get_referrers gc.get_referents traceback.walk_stack traceback.extract_stack tracemalloc __main__ "
        "builtins.__dict__ globals locals",
        "process_memory": "ctypes cffi mmap",
        "thread": "threading.Thread threading.Timer _thread concurrent.futures multiprocessing subprocess asyncio "
        "torch.multiprocessing os.fork os.forkpty os.system os.popen os.posix_spawn os.posix_spawnp os.execv "
        "os.execve os.execvp os.spawnv os.spawnl",
        "process_exit": "os._exit os.abort os.kill os.killpg sys.exit signal exit quit",
        "dynamic_code": "exec eval compile marshal pickle cloudpickle base64 codecs zlib lzma bz2 types.CodeType "
        "types.FunctionType importlib.import_module importlib.util.spec_from_file_location importlib.reload "
        "__import__ code runpy",
        "reads_clock": "time.perf_counter time.perf_counter_ns time.time time.time_ns time.monotonic "
        "time.monotonic_ns time.process_time time.process_time_ns time.clock_gettime timeit torch.cuda.Event "
        "torch.Event datetime",
        "sleeps": "time.sleep torch.cuda._sleep",
        "stream": "torch.cuda.Stream torch.cuda.stream torch.cuda.ExternalStream torch.cuda.set_stream torch.Stream "
        "torch.cuda.StreamContext",
        "cuda_graph": "torch.cuda.CUDAGraph torch.cuda.graph torch.cuda.make_graphed_callables",
        "torch_compile": "torch.compile torch.jit torch._dynamo torch._inductor",
        "kept_between_calls": "functools.lru_cache functools.cache",
        "input_rebuilt": "torch.manual_seed torch.random.manual_seed torch.cuda.manual_seed "
        "torch.cuda.manual_seed_all torch.seed torch.initial_seed torch.Generator torch.set_rng_state "
        "torch.cuda.set_rng_state torch.get_rng_state random.seed numpy.random.seed numpy.random.default_rng "
        "get_inputs get_init_inputs",
        "hooks": "atexit.register sys.settrace sys.setprofile sys.addaudithook threading.settrace "
        "threading.setprofile weakref.finalize sys.excepthook sys.displayhook sys.meta_path sys.path_hooks "
        "torch.autograd.graph",
        "network": "socket urllib requests http ssl ftplib aiohttp",
        "environment": "os.putenv os.unsetenv os.environ.update os.environ.setdefault os.environ.pop",
        "file_access": "open io.open os.open pathlib.Path shutil tempfile os.remove os.unlink os.rename os.listdir "
        "os.scandir os.walk glob.glob torch.load torch.save numpy.load numpy.save os.chmod",
        "descriptors": "os.write os.dup os.dup2 os.fdopen os.pipe os.close os.closerange os.sendfile sys.__stdout__ "
        "sys.__stderr__ fcntl",
        "prints": "print sys.stdout sys.stderr",
        "global_flags": "torch.set_default_dtype torch.set_default_device torch.set_num_threads "
        "torch.set_num_interop_threads torch.use_deterministic_algorithms torch.set_deterministic_debug_mode "
        "torch.set_flush_denormal torch.cuda.set_per_process_memory_fraction torch.cuda.set_device "
        "torch.set_default_tensor_type sys.setrecursionlimit sys.setswitchinterval gc.disable gc.freeze resource "
        "os.sched_setaffinity os.nice os.chdir locale",
        "tf32": "torch.set_float32_matmul_precision",
        "lazy_tensor": "torch.utils._python_dispatch torch.overrides torch.Tensor._make_subclass "
        "torch.Tensor._make_wrapper_subclass torch._subclasses",
        "private_gpu_memory": "torch.cuda.mem_get_info torch.cuda.memory_snapshot torch.cuda.memory pynvml "
        "torch.cuda.caching_allocator_alloc torch.cuda.list_gpu_processes nvidia_smi",
        "monkeypatch": "unittest.mock",
        "half_precision": "torch.float16 torch.half torch.bfloat16 torch.autocast torch.cuda.amp torch.amp "
        "torch.float8_e4m3fn torch.float8_e5m2",
        "vendor_library": "torch.matmul torch.mm torch.bmm torch.mv torch.dot torch.einsum torch.addmm torch.baddbmm "
        "torch.tensordot torch.conv1d torch.conv2d torch.conv3d torch.conv_transpose1d torch.conv_transpose2d "
        "torch.conv_transpose3d torch.softmax torch.log_softmax torch.sum torch.mean torch.max torch.min torch.prod "
        "torch.amax torch.amin torch.argmax torch.argmin torch.cumsum torch.cumprod torch.logsumexp torch.sort "
        "torch.topk torch.var torch.var_mean torch.norm torch.linalg torch.fft torch.relu torch.sigmoid torch.tanh "
        "torch.exp torch.layer_norm torch.batch_norm torch.group_norm torch.nn.functional torch.ops.aten "
        "torch.special torch.sparse torch.bincount torch.histc torch.scatter_add torch.gather",
    }
)
"""Dotted name -> rule; a name includes all names below it (`ctypes` includes `ctypes.CDLL`)."""

ATTRIBUTES: Mapping[str, str] = _by_member(
    {
        "introspection": "f_back f_locals f_globals f_code tb_frame tb_next gi_frame cr_frame ag_frame __globals__ "
        "__code__ __closure__ __subclasses__ __builtins__ __traceback__ __wrapped__",
        "hooks": "register_forward_hook register_forward_pre_hook register_full_backward_hook register_hook "
        "register_module_forward_hook register_module_forward_pre_hook register_load_state_dict_post_hook",
        "lazy_tensor": "_make_subclass _make_wrapper_subclass as_subclass",
        "half_precision": "half bfloat16 float16",
        "private_torch": "_cdata _typed_storage _storage _unsafe_view _untyped_storage _version",
        "process_memory": "untyped_storage_from_address set_data_ptr from_address",
    }
)
"""Name of an attribute of any object -> rule."""

CLOCK_MODULES = (
    "time",
    "timeit",
    "statistics",
    "torch.cuda.Event",
    "torch.Event",
    "torch.cuda.synchronize",
    "torch.cuda.current_stream",
    "torch.cuda.Stream",
    "torch.cuda.elapsed_time",
    "torch.utils.benchmark",
    "torch.profiler",
)
"""Assigning to these names or their members is a finding of `clock_patch`."""

SPECIAL_METHODS: Mapping[str, str] = _by_member(
    {
        "special_methods": "__eq__ __ne__ __lt__ __le__ __gt__ __ge__ __bool__ __getattribute__ __getattr__ "
        "__setattr__ __del__ __instancecheck__ __subclasscheck__ __class_getitem__ __format__ __array__ __reduce__ "
        "__reduce_ex__ __set_name__ __init_subclass__ __prepare__",
        "lazy_tensor": "__torch_function__ __torch_dispatch__ __tensor_flatten__",
    }
)

JOINS = frozenset({"wait_stream", "wait_event", "synchronize", "wait"})
"""Methods that make a stream or the host wait for a stream."""

FILLED = frozenset(
    {"empty", "zeros", "ones", "full", "rand", "randn", "empty_like", "zeros_like", "ones_like", "full_like"}
)
"""Functions that create tensors whose values depend on no input."""

KERNEL_MAKERS = frozenset(
    {
        "load_inline",
        "load",
        "RawKernel",
        "RawModule",
        "ElementwiseKernel",
        "ReductionKernel",
        "_compile_kernel",
        "SourceModule",
    }
)
"""Functions that compile kernels from sources."""

KERNEL_DECORATORS = (
    "triton.jit",
    "triton.autotune",
    "numba.cuda.jit",
    "numba.jit",
    "cute.jit",
    "cutlass.cute",
    "tilelang",
)
HIDING = frozenset(
    {"decode", "b64decode", "decompress", "fromhex", "read", "read_text", "read_bytes", "loads", "unhexlify"}
)
"""Methods whose result is not visible in the file's text."""
