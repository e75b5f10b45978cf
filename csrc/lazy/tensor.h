// The state behind a device tensor: a value, or a view of one.
//
// Tensors that share memory in PyTorch's eyes share an Alias. A view is a chain of steps over it;
// reading replays the chain, writing sends the new values back through it, so that every tensor of
// the alias sees them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "base/ref.h"
#include "ir/node.h"
#include "lazy/view.h"

namespace torch_xla::lazy {

class ViewPath;

// What views share. Lives in its device's registry as long as a tensor refers to it.
class Alias {
 public:
  static Ref<Alias> Make(ir::Value value, int device);

  void Retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Release();

  int device() const { return device_; }
  uint64_t id() const { return id_; }
  ir::Value value();
  void SetValue(ir::Value value);  // a write: cached views are dropped
  // Replaces the value by an equal one, if it is still `old` (materialisation).
  void ReplaceValue(const ir::Value& old, ir::Value by);
  // Those whose nodes were recorded by one of whom `mine` says so.
  void DropCachedViews(const std::function<bool(ir::RecorderId)>& mine);
  // Whether it ever took a value in place of another: state that steps update, such as parameters.
  bool written() const { return written_.load(std::memory_order_relaxed); }
  // How many view paths there are over it.
  uint32_t paths() const { return paths_.load(std::memory_order_relaxed); }

 private:
  friend class Registry;
  friend class ViewPath;
  Alias() = default;
  ~Alias() = default;
  // With `keep_data` those that are computed stay, with `mine` others' nodes.
  void DropCachedViewsLocked(std::vector<ir::Value>& dropped, bool keep_data = false,
                             const std::function<bool(ir::RecorderId)>* mine = nullptr);

  std::atomic<uint32_t> refs_{1};
  int device_ = 0;
  uint64_t id_ = 0;
  std::atomic<bool> written_{false};
  SpinLock lock_;  // guards value_ and the cached views' chain
  std::atomic<uint32_t> paths_{0};
  ir::Value value_;
  ViewPath* cached_views_ = nullptr;
  Alias* prev_ = nullptr;  // registry of the device
  Alias* next_ = nullptr;
};
static_assert(sizeof(Alias) <= 64,
              "made for every operator: one cache line, one block of the pool");

// One more step over an alias or over another view; immutable but for the cached value.
class ViewPath {
 public:
  static Ref<ViewPath> Make(Alias* alias, Ref<ViewPath> parent, ViewStep&& step);

  void Retain() { refs_.fetch_add(1, std::memory_order_relaxed); }
  void Release();

  const Shape& shape() const { return step_.shape; }
  const ViewStep& step() const { return step_; }
  const Ref<ViewPath>& parent() const { return parent_; }
  // Of the view when its alias has the value `base`.
  ir::Value Read(Alias& alias, const ir::Value& base);
  // The alias's new value when the view takes `value`.
  ir::Value WriteBack(Alias& alias, const ir::Value& base, ir::Value value);
  // Kept only while the alias still has that base: another thread may have written meanwhile.
  void Cache(Alias& alias, const ir::Value& base, const ir::Value& value);
  // Whether no two elements of the view are one of the alias, as far as the kinds of step tell.
  bool Injective() const;

 private:
  friend class Alias;
  ViewPath() = default;
  ~ViewPath() = default;

  std::atomic<uint32_t> refs_{1};
  Alias* alias_ = nullptr;  // outlives the path: every tensor with a path holds its alias
  Ref<ViewPath> parent_;
  ViewStep step_;
  ir::Value cached_;  // guarded by the alias's lock
  ViewPath* prev_cached_ = nullptr;
  ViewPath* next_cached_ = nullptr;
};

// A handle; copies denote the same tensor state.
class Tensor {
 public:
  Tensor() = default;
  Tensor(ir::Value value, int device);
  Tensor(const Tensor&) = default;
  Tensor(Tensor&&) = default;
  // By swapping: an old path is released before its alias, as in the destructor.
  Tensor& operator=(Tensor o) noexcept {
    std::swap(alias_, o.alias_);
    std::swap(path_, o.path_);
    return *this;
  }
  ~Tensor() = default;

  bool defined() const { return static_cast<bool>(alias_); }
  int device() const { return alias_->device(); }
  bool is_view() const { return static_cast<bool>(path_); }
  const Shape& view_shape() const { return path_->shape(); }  // of a view
  // Equal for tensors that share memory.
  uint64_t alias_id() const { return alias_->id(); }
  const Ref<Alias>& alias() const { return alias_; }

  ir::Value value() const;
  // Takes the value of equal shape and dtype in place, for all tensors of the alias.
  void Write(ir::Value value) const;
  Tensor View(ViewStep&& step) const;
  // Whether there are views over its alias beside those that it is made of itself.
  bool HasOtherViews() const;
  // The whole of what this is a view of.
  Tensor Root() const;
  // What this tensor is to its root, of another root of the same shape and dtype.
  Tensor Rebase(const Tensor& root) const;

 private:
  Ref<Alias> alias_;
  Ref<ViewPath> path_;  // released before alias_
};

// The live aliases of one device, in the order of their creation.
class Registry {
 public:
  static Registry& Of(int device);

  void Add(Alias* alias);
  void Remove(Alias* alias);
  std::vector<Ref<Alias>> Live();
  size_t size();

 private:
  SpinLock lock_;
  Alias* head_ = nullptr;
  Alias* tail_ = nullptr;
  size_t size_ = 0;
};

inline constexpr int kMaxDevices = 64;  // of one process

}  // namespace torch_xla::lazy
