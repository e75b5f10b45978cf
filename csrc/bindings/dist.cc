// Collectives between replicas.
#include <algorithm>
#include <torch/csrc/distributed/c10d/Backend.hpp>

#include "aten/dtype_map.h"
#include "base/error.h"
#include "base/flags.h"
#include "bindings/module.h"
#include "bindings/source_line.h"
#include "dist/communicator.h"
#include "dist/gloo_transport.h"
#include "dist/recorder.h"
#include "dist/shared_memory.h"
#include "dist/store.h"
#include "lazy/executor.h"
#include "lazy/runtime.h"

namespace torch_xla::bindings {
namespace {

using dist::Ranks;

template <typename Enum>
Enum FromName(const std::string& name, const char* (*name_of)(Enum), int count, const char* what) {
  for (int i = 0; i < count; ++i) {
    auto e = static_cast<Enum>(i);
    if (name == name_of(e)) return e;
  }
  Throw(Code::kInvalidArgument, what, " '", name, "' is unknown");
}

// (kind, reduce, tensors, groups, root, pairs)
using PartTuple = std::tuple<std::string, std::string, std::vector<at::Tensor>, std::vector<Ranks>,
                             int64_t, std::vector<std::pair<int64_t, int64_t>>>;

std::shared_ptr<dist::Pending> Start(std::vector<PartTuple> tuples, Ranks scope,
                                     const std::string& label) {
  const ir::SourceLine* line = PythonLine();
  py::gil_scoped_release release;
  std::vector<dist::Operands> parts;
  for (auto& [kind, reduce, tensors, groups, root, pairs] : tuples) {
    dist::Operands& o = parts.emplace_back();
    o.part.kind = FromName(kind, &dist::KindName, 6, "collective");
    o.part.reduce = FromName(reduce, &dist::ReduceName, 6, "reduction");
    o.part.groups = std::move(groups);
    o.part.root = root;
    o.part.pairs = std::move(pairs);
    o.tensors = std::move(tensors);
  }
  return dist::Start(std::move(parts), std::move(scope), line, label);
}

// On the communication thread, before the GIL is taken: who takes it of a Python that exits ends.
void CheckPython() { XLA_CHECK(Py_IsInitialized() != 0, kFailedPrecondition, "Python exits"); }

// Calls Python on the communication thread; its exceptions become errors of the core.
template <typename R, typename... Args>
R Call(const py::object& fn, const Args&... args) {
  CheckPython();
  py::gil_scoped_acquire gil;
  try {
    return fn(args...).template cast<R>();
  } catch (py::error_already_set& e) {
    std::string message = py::str(e.value());
    bool late = e.matches(PyExc_TimeoutError);
    throw Error(late ? Code::kDeadlineExceeded : Code::kUnavailable, message);
  }
}

// Of this process, while it has any; lives as long as the process.
std::shared_ptr<dist::SharedMemory>& OwnMemory() {
  static auto* memory = new std::shared_ptr<dist::SharedMemory>;
  return *memory;
}

// (pid, fd, size, token, control)
using AddressTuple = std::tuple<int64_t, int64_t, int64_t, uint64_t, int64_t>;

// False: XLA_SHARED_MEMORY does not want it.
bool OpenSharedMemory() {
  if (!flags::GetBool(flags::Flag::kSharedMemory)) return false;
  if (!OwnMemory()) OwnMemory() = std::make_shared<dist::SharedMemory>();
  return true;
}

AddressTuple SharedAddressFor(size_t members) {
  XLA_INTERNAL_CHECK(OwnMemory());
  dist::SharedAddress a = OwnMemory()->NewGroup(members);
  return {a.pid, a.fd, a.size, a.token, a.control};
}

// A transport on its way through Python.
struct TransportHolder {
  std::unique_ptr<dist::Transport> transport;
};

std::shared_ptr<TransportHolder> SharedTransport(int index,
                                                 const std::vector<AddressTuple>& addresses) {
  std::vector<dist::SharedAddress> members;
  for (auto [pid, fd, size, token, control] : addresses) {
    members.push_back({pid, fd, size, token, control});
  }
  return std::make_shared<TransportHolder>(
      TransportHolder{dist::MakeSharedMemoryTransport(OwnMemory(), index, members)});
}

// What `fn` gives is a TransportHolder or a backend of c10d.
std::unique_ptr<dist::Transport> Connect(const py::object& fn, const Ranks& ranks) {
  CheckPython();
  py::gil_scoped_acquire gil;
  auto held = Call<py::object>(fn, ranks);
  if (py::isinstance<TransportHolder>(held)) {
    return std::move(held.cast<TransportHolder&>().transport);
  }
  // A pybind11 object with any holder: the caller's reference is one more.
  auto group = c10::intrusive_ptr<c10d::Backend>::reclaim_copy(held.cast<c10d::Backend*>());
  return dist::MakeGlooTransport(std::move(group));
}

std::shared_ptr<py::object> Immortal(py::object fn) {
  return {new py::object(std::move(fn)), [](py::object*) {}};
}

// A replica whose plugin has collectives of its own.
void SetNative(int device, int64_t rank, int64_t size) {
  dist::World world;
  world.rank = rank;
  world.size = size;
  world.way = dist::Way::kNative;
  dist::SetCommunicator(device, std::make_shared<dist::Communicator>(std::move(world)));
}

void SetCommunicator(int device, int64_t rank, int64_t size, py::object connect, py::object compare,
                     py::object give_up) {
  dist::World world;
  world.rank = rank;
  world.size = size;
  if (OwnMemory()) world.memory = OwnMemory();
  world.connect = [f = Immortal(std::move(connect))](const Ranks& r) { return Connect(*f, r); };
  world.compare = [f = Immortal(std::move(compare))](int64_t sequence, const Ranks& scope,
                                                     const std::string& mine) {
    return Call<std::vector<std::string>>(*f, sequence, scope, mine);
  };
  world.give_up = [f = Immortal(std::move(give_up))](const std::string& why) {
    return Call<std::string>(*f, why);
  };
  py::gil_scoped_release release;
  dist::SetCommunicator(device, std::make_shared<dist::Communicator>(std::move(world)));
}

// Makes the devices replicas of one program, in this order.
std::shared_ptr<dist::LocalWorld> JoinDevices(const std::vector<int>& devices) {
  XLA_CHECK(lazy::Runtime::Get().platform() == "CPU", kUnimplemented,
            "replicas as threads need a CPU plugin; on ", lazy::Runtime::Get().platform(),
            " start a process for each device (xmp.spawn, torchrun)");
  for (int d : devices) lazy::CheckDevice(d);
  auto local = std::make_shared<dist::LocalWorld>(static_cast<int64_t>(devices.size()));
  for (size_t i = 0; i < devices.size(); ++i) {
    dist::World world;
    world.rank = static_cast<int64_t>(i);
    world.size = local->size();
    world.way = dist::Way::kThreads;
    world.local = local;
    world.give_up = [local, rank = world.rank](const std::string& why) {
      local->Gone(rank, "has failed: " + why);
      return std::string();
    };
    dist::SetCommunicator(devices[i], std::make_shared<dist::Communicator>(std::move(world)));
  }
  return local;
}

}  // namespace

void InitDist(py::module_& m) {
  py::class_<dist::LocalWorld, std::shared_ptr<dist::LocalWorld>>(m, "_XlaLocalWorld")
      .def("gone", &dist::LocalWorld::Gone, py::arg("rank"), py::arg("why"), NoGil());
  m.def("_xla_join_devices", &JoinDevices, py::arg("devices"), NoGil());
  m.def("_xla_drop_communicator", &dist::DropCommunicator, py::arg("device"), NoGil());
  py::class_<dist::Pending, std::shared_ptr<dist::Pending>>(m, "_XlaPending")
      .def("finish", &dist::Pending::Finish, NoGil());
  m.def("_xla_collective_start", &Start, py::arg("parts"), py::arg("scope"), py::arg("label"));
  m.def("_xla_set_communicator", &SetCommunicator, py::arg("device"), py::arg("rank"),
        py::arg("size"), py::arg("connect"), py::arg("compare"), py::arg("give_up"));
  m.def("_xla_set_native_communicator", &SetNative, py::arg("device"), py::arg("rank"),
        py::arg("size"), NoGil());
  m.def(
      "_xla_set_key_value_store",
      [](const c10::intrusive_ptr<c10d::Store>& store) {
        pjrt::SetKeyValueStore(dist::MakeKeyValueStore(store));
      },
      py::arg("store"));
  const py::class_<TransportHolder, std::shared_ptr<TransportHolder>> holder(m, "_XlaTransport");
  m.def("_xla_open_shared_memory", &OpenSharedMemory);
  m.def("_xla_shared_address", &SharedAddressFor, py::arg("members"));
  m.def("_xla_shared_transport", &SharedTransport, py::arg("index"), py::arg("addresses"));
  // Without the GIL: who holds a chain's lock may be waiting for it.
  m.def(
      "_xla_has_communicator", [](int device) { return dist::CommunicatorOf(device) != nullptr; },
      NoGil());
  m.def("_xla_launch_collectives", &dist::LaunchCollectives, py::arg("device"), NoGil());
  m.def(
      "_xla_collective_status",
      [](int device) {
        auto c = dist::CommunicatorOf(device);
        return std::make_pair(c ? c->Latest() : "", c ? c->status().message : "");
      },
      NoGil());
  m.def("_xla_reduction_supported", [](const std::string& reduce, const at::Tensor& t) {
    return dist::Supports(FromName(reduce, &dist::ReduceName, 6, "reduction"),
                          ToDType(t.scalar_type()));
  });
}

}  // namespace torch_xla::bindings
