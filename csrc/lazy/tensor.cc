#include "lazy/tensor.h"

#include <mutex>
#include <new>
#include <utility>

#include "base/error.h"
#include "base/metrics.h"
#include "base/pool.h"
#include "base/wait.h"

namespace torch_xla::lazy {
namespace {

// Numbers are taken in blocks: an atomic operation per tensor would be seen in what recording
// costs.
uint64_t NextAliasId() {
  constexpr uint64_t kBlock = 1024;
  static std::atomic<uint64_t> next_block{1};
  [[gnu::tls_model("initial-exec")]] thread_local uint64_t next = 0;
  if (next % kBlock == 0) [[unlikely]]
    next = next_block.fetch_add(1, std::memory_order_relaxed) * kBlock;
  return next++;
}

metrics::Counter& TensorsMade() {
  static metrics::Counter* c = metrics::GetCounter("CreateXlaTensor");
  return *c;
}

}  // namespace

Ref<Alias> Alias::Make(ir::Value value, int device) {
  CheckNotForked();
  auto* a = new (pool::Allocate(sizeof(Alias))) Alias;
  a->device_ = device;
  a->id_ = NextAliasId();
  a->value_ = std::move(value);
  Registry::Of(device).Add(a);
  TensorsMade().Add();
  return Ref<Alias>::Adopt(a);
}

void Alias::Release() {
  // Only the registry's own walk takes a reference to an alias that no tensor holds any more, and
  // it never revives one: Live() takes only aliases whose count is not zero yet.
  if (refs_.fetch_sub(1, std::memory_order_acq_rel) != 1) return;
  if (InForkedChild()) return;  // another thread may have held the registry's lock at the fork
  Registry::Of(device_).Remove(this);
  this->~Alias();
  pool::Free(this, sizeof(Alias));
}

ir::Value Alias::value() {
  std::lock_guard<SpinLock> lock(lock_);
  return value_;
}

// Values are released after the lock: the last reference to a graph may take long to go.
void Alias::SetValue(ir::Value value) {
  std::vector<ir::Value> dropped;
  {
    std::lock_guard<SpinLock> lock(lock_);
    DropCachedViewsLocked(dropped);
    std::swap(value_, value);
    written_.store(true, std::memory_order_relaxed);
  }
}

void Alias::ReplaceValue(const ir::Value& old, ir::Value by) {
  std::vector<ir::Value> dropped;
  std::lock_guard<SpinLock> lock(lock_);
  if (value_.node == old.node && value_.index == old.index) {
    DropCachedViewsLocked(dropped, /*keep_data=*/true);
    std::swap(value_, by);
  }
}

void Alias::DropCachedViews(const std::function<bool(ir::RecorderId)>& mine) {
  std::vector<ir::Value> dropped;
  std::lock_guard<SpinLock> lock(lock_);
  if (cached_views_ != nullptr) DropCachedViewsLocked(dropped, /*keep_data=*/false, &mine);
}

void Alias::DropCachedViewsLocked(std::vector<ir::Value>& dropped, bool keep_data,
                                  const std::function<bool(ir::RecorderId)>* mine) {
  ViewPath* path = std::exchange(cached_views_, nullptr);
  while (path != nullptr) {
    ViewPath* next = path->next_cached_;
    path->prev_cached_ = path->next_cached_ = nullptr;
    const ir::Node& cached = *path->cached_.node;
    if ((keep_data && cached.kind() == ir::OpKind::kData) ||
        (mine != nullptr && !(*mine)(cached.recorder()))) {
      path->next_cached_ = cached_views_;
      if (cached_views_ != nullptr) cached_views_->prev_cached_ = path;
      cached_views_ = path;
    } else {
      dropped.push_back(std::move(path->cached_));
      path->cached_ = {};
    }
    path = next;
  }
}

Ref<ViewPath> ViewPath::Make(Alias* alias, Ref<ViewPath> parent, ViewStep&& step) {
  auto* p = new (pool::Allocate(sizeof(ViewPath))) ViewPath;
  p->alias_ = alias;
  alias->paths_.fetch_add(1, std::memory_order_relaxed);
  p->parent_ = std::move(parent);
  p->step_ = std::move(step);
  return Ref<ViewPath>::Adopt(p);
}

// Iterative: a program may grow a chain of views in a loop.
void ViewPath::Release() {
  ViewPath* p = this;
  while (p != nullptr && p->refs_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
    if (InForkedChild()) return;
    {
      std::lock_guard<SpinLock> lock(p->alias_->lock_);
      if (p->cached_) {
        if (p->prev_cached_ != nullptr) {
          p->prev_cached_->next_cached_ = p->next_cached_;
        } else {
          p->alias_->cached_views_ = p->next_cached_;
        }
        if (p->next_cached_ != nullptr) p->next_cached_->prev_cached_ = p->prev_cached_;
      }
    }
    p->alias_->paths_.fetch_sub(1, std::memory_order_relaxed);
    ViewPath* parent = p->parent_.Detach();
    p->~ViewPath();
    pool::Free(p, sizeof(ViewPath));
    p = parent;
  }
}

void ViewPath::Cache(Alias& alias, const ir::Value& base, const ir::Value& value) {
  std::lock_guard<SpinLock> lock(alias.lock_);
  if (cached_ || alias.value_.node != base.node || alias.value_.index != base.index) return;
  cached_ = value;
  prev_cached_ = nullptr;
  next_cached_ = alias.cached_views_;
  if (next_cached_ != nullptr) next_cached_->prev_cached_ = this;
  alias.cached_views_ = this;
}

ir::Value ViewPath::Read(Alias& alias, const ir::Value& base) {
  {
    std::lock_guard<SpinLock> lock(alias.lock_);
    if (cached_) return cached_;
  }
  ir::Value value = step_.Read(parent_ ? parent_->Read(alias, base) : base);
  Cache(alias, base, value);
  return value;
}

ir::Value ViewPath::WriteBack(Alias& alias, const ir::Value& base, ir::Value value) {
  for (ViewPath* p = this; p != nullptr; p = p->parent_.get()) {
    ir::Value parent = p->parent_ ? p->parent_->Read(alias, base) : base;
    const ViewStep& step = p->step_;
    if (p != this && (step.kind == ViewKind::kExpand || step.kind == ViewKind::kAsStrided)) {
      // Written is a view of these elements that repeat others: view.cc asks which have changed.
      ViewStep partly = step;
      partly.params.push_back(1);
      value = partly.Write(std::move(parent), std::move(value));
    } else {
      value = step.Write(std::move(parent), std::move(value));
    }
  }
  return value;
}

bool ViewPath::Injective() const {
  for (const ViewPath* p = this; p != nullptr; p = p->parent_.get()) {
    if (p->step_.kind == ViewKind::kExpand || p->step_.kind == ViewKind::kAsStrided) return false;
  }
  return true;
}

Tensor::Tensor(ir::Value value, int device) : alias_(Alias::Make(std::move(value), device)) {}

ir::Value Tensor::value() const {
  ir::Value base = alias_->value();
  return path_ ? path_->Read(*alias_, base) : base;
}

void Tensor::Write(ir::Value value) const {
  if (!path_) {
    alias_->SetValue(std::move(value));
    return;
  }
  ir::Value written = path_->WriteBack(*alias_, alias_->value(), value);
  alias_->SetValue(written);
  if (path_->Injective()) path_->Cache(*alias_, written, value);
}

Tensor Tensor::View(ViewStep&& step) const {
  CheckNotForked();
  Tensor t;
  t.alias_ = alias_;
  Ref<ViewPath> parent = path_;
  // Reshapes and permutations in a row are one, so that `x.t_()` in a loop does not grow a chain.
  if (parent && parent->step().kind == step.kind) {
    if (step.kind == ViewKind::kReshape) {
      parent = parent->parent();
    } else if (step.kind == ViewKind::kPermute) {
      const Dims& first = parent->step().params;
      for (int64_t& d : step.params) d = first[static_cast<size_t>(d)];
      parent = parent->parent();
    }
  }
  t.path_ = ViewPath::Make(alias_.get(), std::move(parent), std::move(step));
  return t;
}

bool Tensor::HasOtherViews() const {
  uint32_t own = 0;
  for (const ViewPath* p = path_.get(); p != nullptr; p = p->parent().get()) ++own;
  return alias_->paths() > own;
}

Tensor Tensor::Root() const {
  Tensor t = *this;
  t.path_ = {};
  return t;
}

Tensor Tensor::Rebase(const Tensor& root) const {
  XLA_CHECK(!root.path_, kInvalidArgument, "the root of a view is no view");
  std::vector<const ViewPath*> chain;
  for (const ViewPath* p = path_.get(); p != nullptr; p = p->parent().get()) chain.push_back(p);
  Tensor t = root;
  for (auto p = chain.rbegin(); p != chain.rend(); ++p) {
    ViewStep step = (*p)->step();
    t.path_ = ViewPath::Make(t.alias_.get(), t.path_, std::move(step));
  }
  return t;
}

Registry& Registry::Of(int device) {
  static auto* registries = new Registry[kMaxDevices];
  return registries[device];
}

void Registry::Add(Alias* alias) {
  std::lock_guard<SpinLock> lock(lock_);
  alias->prev_ = tail_;
  (tail_ != nullptr ? tail_->next_ : head_) = alias;
  tail_ = alias;
  ++size_;
}

void Registry::Remove(Alias* alias) {
  std::lock_guard<SpinLock> lock(lock_);
  (alias->prev_ != nullptr ? alias->prev_->next_ : head_) = alias->next_;
  (alias->next_ != nullptr ? alias->next_->prev_ : tail_) = alias->prev_;
  --size_;
}

std::vector<Ref<Alias>> Registry::Live() {
  std::vector<Ref<Alias>> live;
  std::lock_guard<SpinLock> lock(lock_);
  live.reserve(size_);
  for (Alias* a = head_; a != nullptr; a = a->next_) {
    uint32_t refs = a->refs_.load(std::memory_order_relaxed);
    while (refs != 0 && !a->refs_.compare_exchange_weak(refs, refs + 1)) {
    }
    if (refs != 0) live.push_back(Ref<Alias>::Adopt(a));
  }
  return live;
}

size_t Registry::size() {
  std::lock_guard<SpinLock> lock(lock_);
  return size_;
}

}  // namespace torch_xla::lazy
