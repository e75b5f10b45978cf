#include "dist/shared_memory.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "base/wait.h"
#include "dist/direct_transport.h"

namespace torch_xla::dist {
namespace {

constexpr size_t kPage = 4096;

// At the memory's beginning.
struct Head {
  uint64_t token;  // that a file found by number is the one that was meant
};

size_t RoundUp(size_t size) { return (std::max<size_t>(size, 1) + kPage - 1) / kPage * kPage; }

[[noreturn]] void Fail(const std::string& what) {
  Throw(Code::kUnavailable, what, ": ", std::strerror(errno));
}

// Pages that nobody has written to cost nothing.
char* Map(int fd, size_t size) {
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, fd, 0);
  if (base == MAP_FAILED) return nullptr;
  madvise(base, size, MADV_DONTDUMP);
  return static_cast<char*>(base);
}

class Peer {
 public:
  explicit Peer(const SharedAddress& address) : size_(static_cast<size_t>(address.size)) {
    const std::string path = StrCat("/proc/", address.pid, "/fd/", address.fd);
    process_ = static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(address.pid), 0));
    if (process_ < 0) Fail(StrCat("cannot watch process ", address.pid));
    int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (fd >= 0) base_ = Map(fd, size_);
    const int error = errno;
    if (fd >= 0) close(fd);
    errno = error;
    Head head{};
    if (base_ != nullptr) std::memcpy(&head, base_, sizeof(head));
    if (base_ == nullptr || head.token != address.token) {
      Release();
      if (base_ == nullptr) Fail(StrCat("cannot map ", path));
      Throw(Code::kUnavailable, path, " is not what it should be");
    }
  }
  ~Peer() { Release(); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  char* base() const { return base_; }
  int process() const { return process_; }

 private:
  void Release() const {
    if (base_ != nullptr) munmap(base_, size_);
    if (process_ >= 0) close(process_);
  }

  const size_t size_;
  char* base_ = nullptr;
  int process_ = -1;  // readable when it has ended
};

// Of all groups of this process together: each mapping is of twice the machine's memory.
std::shared_ptr<Peer> PeerAt(const SharedAddress& address) {
  static auto* mutex = new std::mutex;
  static auto* peers = new std::map<std::pair<int64_t, uint64_t>, std::weak_ptr<Peer>>;
  std::lock_guard<std::mutex> lock(*mutex);
  std::erase_if(*peers, [](const auto& entry) { return entry.second.expired(); });
  std::weak_ptr<Peer>& known = (*peers)[{address.pid, address.token}];
  std::shared_ptr<Peer> peer = known.lock();
  if (!peer) known = peer = std::make_shared<Peer>(address);
  return peer;
}

class SharedReach final : public Reach {
 public:
  SharedReach(std::shared_ptr<SharedMemory> mine, int index,
              const std::vector<SharedAddress>& addresses)
      : mine_(std::move(mine)) {
    for (size_t m = 0; m < addresses.size(); ++m) {
      if (static_cast<int>(m) == index) {
        bases_.push_back(mine_->base());
        continue;
      }
      peers_.push_back(PeerAt(addresses[m]));
      bases_.push_back(peers_.back()->base());
      watched_.push_back({peers_.back()->process(), POLLIN, 0});
    }
  }

  int64_t NameOf(const void* mine) const override { return mine_->OffsetOf(mine); }
  char* Find(int member, int64_t name) const override {
    return bases_[static_cast<size_t>(member)] + name;
  }
  bool SomebodyEnded() const override {
    std::vector<pollfd> watched = watched_;
    return poll(watched.data(), watched.size(), 0) > 0;
  }

 private:
  const std::shared_ptr<SharedMemory> mine_;
  std::vector<std::shared_ptr<Peer>> peers_;
  std::vector<char*> bases_;
  std::vector<pollfd> watched_;
};

}  // namespace

SharedMemory::SharedMemory() {
  fd_ = memfd_create("torch_xla", MFD_CLOEXEC);
  if (fd_ < 0) Fail("memfd_create");
  // More than there can be: what is not used costs addresses only.
  size_ = 2 * kPage * static_cast<size_t>(sysconf(_SC_PHYS_PAGES));
  if (ftruncate(fd_, static_cast<off_t>(size_)) == 0) base_ = Map(fd_, size_);
  if (base_ == nullptr) {
    const int error = errno;
    close(fd_);
    errno = error;
    Fail(StrCat("cannot map ", size_, " bytes of shared memory"));
  }
  if (getrandom(&token_, sizeof(token_), 0) != sizeof(token_)) token_ = 0;
  const Head head{token_};
  std::memcpy(base_, &head, sizeof(head));
  free_[kPage] = size_ - kPage;
}

SharedMemory::~SharedMemory() {
  munmap(base_, size_);
  close(fd_);
}

char* SharedMemory::Allocate(size_t size) {
  size = RoundUp(size);
  std::unique_lock<std::mutex> lock(mutex_);
  auto it = free_.begin();
  while (it != free_.end() && it->second < size) ++it;
  XLA_CHECK(it != free_.end(), kResourceExhausted, "no room for ", size,
            " bytes that go to others");
  auto [offset, room] = *it;
  free_.erase(it);
  if (room > size) free_[offset + size] = room - size;
  lock.unlock();
  // Now, because a page that cannot be had later is a SIGBUS.
  if (fallocate(fd_, 0, static_cast<off_t>(offset), static_cast<off_t>(size)) != 0) {
    const int error = errno;
    Free(base_ + offset, size);
    Throw(Code::kResourceExhausted, size,
          " bytes of memory shared with other processes: ", std::strerror(error));
  }
  return base_ + offset;
}

void SharedMemory::Free(char* data, size_t size) {
  size = RoundUp(size);
  auto offset = static_cast<size_t>(data - base_);
  fallocate(fd_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(offset),
            static_cast<off_t>(size));
  std::lock_guard<std::mutex> lock(mutex_);
  auto next = free_.lower_bound(offset);
  if (next != free_.end() && next->first == offset + size) {
    size += next->second;
    next = free_.erase(next);
  }
  if (next != free_.begin()) {
    auto before = std::prev(next);
    if (before->first + before->second == offset) {
      before->second += size;
      return;
    }
  }
  free_[offset] = size;
}

int64_t SharedMemory::OffsetOf(const void* data) const {
  const auto* p = static_cast<const char*>(data);
  return p >= base_ && p < base_ + size_ ? p - base_ : -1;
}

SharedAddress SharedMemory::NewGroup(size_t members) {
  SharedAddress a;
  a.pid = getpid();
  a.fd = fd_;
  a.size = static_cast<int64_t>(size_);
  a.token = token_;
  a.control = OffsetOf(Allocate(ControlSize(members)));
  return a;
}

std::unique_ptr<Transport> MakeSharedMemoryTransport(std::shared_ptr<SharedMemory> mine, int index,
                                                     const std::vector<SharedAddress>& addresses) {
  auto reach = std::make_unique<SharedReach>(mine, index, addresses);
  void* control = reach->Find(0, addresses[0].control);
  return MakeDirectTransport(index, static_cast<int>(addresses.size()), control, std::move(reach),
                             std::move(mine), 0.8 * WaitTimeout());
}

}  // namespace torch_xla::dist
