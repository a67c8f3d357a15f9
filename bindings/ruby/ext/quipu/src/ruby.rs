//! Wraps the functions of Ruby's C interface that the gem uses, and explains the rules that keep
//! them sound.
//!
//! Ruby raises by `longjmp`, which leaves frames without running destructors. This is why a frame
//! must hold only plain data while a function calls Ruby code that may raise. The functions that
//! count hold plain data only. All others run in [`guarded`], and call Ruby in [`protect`] wherever
//! it may raise; the closures of `protect` only borrow and own no values.

use std::cell::OnceCell;
use std::ffi::{CStr, c_int, c_void};
use std::mem::MaybeUninit;
use std::panic::{AssertUnwindSafe, catch_unwind};

use rb_sys::{
    ID, Qfalse, Qnil, Qtrue, RTYPEDDATA_GET_DATA, RTYPEDDATA_P, RTYPEDDATA_TYPE, VALUE,
    rb_ary_entry, rb_ary_new_capa, rb_ary_push, rb_check_typeddata, rb_const_get, rb_data_type_t,
    rb_data_typed_object_wrap, rb_define_method, rb_define_private_method, rb_exc_new,
    rb_exc_raise, rb_float_new, rb_gc_mark, rb_intern, rb_jump_tag, rb_protect, rb_utf8_str_new,
    ruby_value_type, size_t,
};

pub(crate) const NIL: VALUE = Qnil as VALUE;
pub(crate) const TRUE: VALUE = Qtrue as VALUE;
pub(crate) const FALSE: VALUE = Qfalse as VALUE;

/// An error that becomes a Ruby exception.
pub(crate) enum Raise {
    /// The name of a class of this module or of Ruby, and the message.
    New(&'static CStr, String),
    /// An exception that Ruby already raised.
    Tag(c_int),
}

impl Raise {
    pub(crate) fn argument(message: impl Into<String>) -> Self {
        Self::New(c"ArgumentError", message.into())
    }

    pub(crate) fn store(error: impl std::fmt::Display) -> Self {
        Self::New(c"StoreError", error.to_string())
    }
}

/// Calls `work`; if it returns an error, raises it after everything that `work` owns is dropped. A
/// panic becomes an exception, too.
pub(crate) fn guarded(work: impl FnOnce() -> Result<VALUE, Raise>) -> VALUE {
    let result = catch_unwind(AssertUnwindSafe(work));
    let raise = match result {
        Ok(Ok(value)) => return value,
        Ok(Err(raise)) => raise,
        Err(_) => Raise::New(c"StoreError", "a bug in quipu: please report it".into()),
    };
    let (exception, tag) = match raise {
        Raise::Tag(tag) => (NIL, tag),
        Raise::New(class, message) => {
            // SAFETY: both calls raise only if memory is exhausted; then the message leaks.
            let exception = unsafe {
                let length = message.len().try_into().unwrap_or(0);
                rb_exc_new(error_class(class), message.as_ptr().cast(), length)
            };
            drop(message);
            (exception, 0)
        }
    };
    // SAFETY: from here on, the frame holds only plain data.
    unsafe {
        if tag != 0 {
            rb_jump_tag(tag)
        }
        rb_exc_raise(exception)
    }
}

/// Calls `work`, which may raise and must not own a value with a destructor.
pub(crate) fn protect<F: Fn() -> VALUE + Copy>(work: F) -> Result<VALUE, Raise> {
    unsafe extern "C" fn call<F: Fn() -> VALUE>(work: VALUE) -> VALUE {
        // SAFETY: `protect` passes a pointer to its closure, which outlives the call.
        unsafe { (*(work as *const F))() }
    }
    let mut tag = 0;
    // SAFETY: the closure lives until `rb_protect` returns. It is `Copy`, so it needs no drop.
    let value = unsafe { rb_protect(Some(call::<F>), &raw const work as VALUE, &raw mut tag) };
    if tag == 0 { Ok(value) } else { Err(Raise::Tag(tag)) }
}

/// Calls `work` without the GVL, so that other Ruby threads can run. `work` must not touch Ruby.
pub(crate) fn without_gvl<T: Send>(work: impl FnOnce() -> T + Send) -> Result<T, Raise> {
    unsafe extern "C" {
        // From `ruby/thread.h`, which the bindings do not cover.
        fn rb_thread_call_without_gvl(
            work: unsafe extern "C" fn(*mut c_void) -> *mut c_void,
            data: *mut c_void,
            unblock: Option<unsafe extern "C" fn(*mut c_void)>,
            unblock_data: *mut c_void,
        ) -> *mut c_void;
    }
    struct Call<W, T> {
        work: Option<W>,
        result: Option<T>,
    }
    unsafe extern "C" fn call<T, W: FnOnce() -> T>(data: *mut c_void) -> *mut c_void {
        // SAFETY: it is the caller's `Call`, and the caller is blocked until this returns.
        let call = unsafe { &mut *data.cast::<Call<W, T>>() };
        if let Some(work) = call.work.take() {
            call.result = catch_unwind(AssertUnwindSafe(work)).ok();
        }
        std::ptr::null_mut()
    }
    fn run<T, W: FnOnce() -> T>(data: &mut Call<W, T>) {
        let data: *mut Call<W, T> = data;
        // SAFETY: `data` lives until the call returns. Before and after it, Ruby may raise an
        // exception that is pending for this thread: see `protect` in the caller.
        unsafe {
            rb_thread_call_without_gvl(call::<T, W>, data.cast(), None, std::ptr::null_mut());
        }
    }
    let mut data = Call { work: Some(work), result: None };
    let pointer = &raw mut data;
    protect(|| {
        // SAFETY: no other code uses `data` before `protect` returns.
        run(unsafe { &mut *pointer });
        NIL
    })?;
    data.result.ok_or_else(|| Raise::store("a bug in quipu: please report it"))
}

fn error_class(name: &CStr) -> VALUE {
    // SAFETY: the constants are defined when this library is loaded.
    unsafe {
        let is_builtin = [c"ArgumentError", c"TypeError"].contains(&name);
        let scope = if is_builtin { rb_sys::rb_cObject } else { module() };
        rb_const_get(scope, rb_intern(name.as_ptr()))
    }
}

/// Returns the module `Quipu`.
pub(crate) fn module() -> VALUE {
    // SAFETY: the call returns the existing module, or creates it.
    unsafe { rb_sys::rb_define_module(c"Quipu".as_ptr()) }
}

/// A Rust value that a Ruby object holds.
pub(crate) trait Wrapped: Sized + 'static {
    /// A `static` of this type, because Ruby compares its address. A `const` can get a different
    /// address in each codegen unit.
    const TYPE: &'static DataType;

    /// Marks the objects that this value refers to.
    fn mark(&self) {}
}

/// The type of Ruby objects that hold a Rust value.
#[repr(transparent)]
pub(crate) struct DataType(rb_data_type_t);

// SAFETY: neither the value nor the memory that it points to ever changes.
unsafe impl Sync for DataType {}

impl DataType {
    pub(crate) const fn new<T: Wrapped>(name: &'static CStr) -> Self {
        unsafe extern "C" fn mark<T: Wrapped>(data: *mut c_void) {
            // SAFETY: Ruby passes the pointer that it got from `allocate`.
            if let Some(value) = unsafe { &*data.cast::<OnceCell<T>>() }.get() {
                value.mark();
            }
        }
        unsafe extern "C" fn free<T: Wrapped>(data: *mut c_void) {
            // SAFETY: it is the box that `allocate` leaked, and Ruby frees it once. A panic in the
            // drop is caught here.
            let _ = catch_unwind(|| drop(unsafe { Box::from_raw(data.cast::<OnceCell<T>>()) }));
        }
        unsafe extern "C" fn size<T>(_: *const c_void) -> size_t {
            size_of::<OnceCell<T>>() as size_t
        }
        // SAFETY: all of its fields may be zero.
        let mut data: rb_data_type_t = unsafe { MaybeUninit::zeroed().assume_init() };
        data.wrap_struct_name = name.as_ptr();
        data.function.dmark = Some(mark::<T>);
        data.function.dfree = Some(free::<T>);
        data.function.dsize = Some(size::<T>);
        // Ruby can free it during a sweep, because freeing it does not call Ruby.
        data.flags = FREE_IMMEDIATELY;
        Self(data)
    }
}

/// `RUBY_TYPED_FREE_IMMEDIATELY`.
const FREE_IMMEDIATELY: VALUE = 1;

/// Allocates an object without a value.
pub(crate) unsafe extern "C" fn allocate<T: Wrapped>(class: VALUE) -> VALUE {
    let data = Box::into_raw(Box::new(OnceCell::<T>::new()));
    // SAFETY: `class` is the class that Ruby instantiates. If memory is exhausted, the box is
    // leaked.
    unsafe { rb_data_typed_object_wrap(class, data.cast(), &raw const T::TYPE.0) }
}

/// Gives an object its value, once.
pub(crate) fn fill<T: Wrapped>(object: VALUE, value: T) -> Result<(), Raise> {
    // SAFETY: it returns a pointer or raises, in `protect`.
    let data = protect(|| unsafe { rb_check_typeddata(object, &raw const T::TYPE.0) as VALUE })?;
    // SAFETY: the object holds data of this type, because `allocate` gave it.
    let cell = unsafe { &*(data as *const OnceCell<T>) };
    cell.set(value).map_err(|_| Raise::argument("already initialized: create another object"))
}

/// Returns the value of an object. Raises if there is none; so the caller's frame must hold only
/// plain data.
///
/// # Safety
/// The object must outlive the reference, like the receiver and the arguments of a method.
#[inline(always)]
pub(crate) unsafe fn value<'a, T: Wrapped>(object: VALUE) -> &'a T {
    // SAFETY: `data` returns the data of this type that `allocate` gave the object.
    let cell = unsafe { &*data::<T>(object).cast::<OnceCell<T>>() };
    match cell.get() {
        Some(value) => value,
        None => uninitialized(),
    }
}

/// Returns the data of an object of this type, like `rb_check_typeddata`, which takes 30
/// instructions more.
#[inline(always)]
unsafe fn data<T: Wrapped>(object: VALUE) -> *mut c_void {
    let wanted = &raw const T::TYPE.0;
    // SAFETY: each call is for the type that the previous call found.
    unsafe {
        if is(object, ruby_value_type::RUBY_T_DATA)
            && RTYPEDDATA_P(object)
            && RTYPEDDATA_TYPE(object) == wanted
        {
            return RTYPEDDATA_GET_DATA(object);
        }
        rb_check_typeddata(object, wanted)
    }
}

#[cold]
fn uninitialized() -> ! {
    guarded(|| Err(Raise::New(c"TypeError", "not initialized: call new, not allocate".into())));
    unreachable!("the line above raises")
}

/// Marks an object. This also keeps compaction from moving it.
pub(crate) fn mark(object: VALUE) {
    // SAFETY: only `Wrapped::mark` calls it.
    unsafe { rb_gc_mark(object) }
}

/// Defines a method. Its arity is the number of arguments of `function` without the receiver, or
/// -1 for a function of `(argc, argv, self)`.
macro_rules! method {
    ($class:expr, $name:literal, $function:expr, $arity:literal) => {
        // SAFETY: Ruby calls the function with the arguments that its arity promises.
        unsafe {
            $crate::ruby::define($class, $name, $function as *const (), $arity);
        }
    };
}
pub(crate) use method;

/// Defines a private method, which only the Ruby part calls; see the macro `method!`.
macro_rules! private_method {
    ($class:expr, $name:literal, $function:expr, $arity:literal) => {
        // SAFETY: Ruby calls the function with the arguments that its arity promises.
        unsafe {
            $crate::ruby::define_private($class, $name, $function as *const (), $arity);
        }
    };
}
pub(crate) use private_method;

/// Defines a method; see the macro `method!`.
///
/// # Safety
/// `function` must match the signature for `arity`.
pub(crate) unsafe fn define(class: VALUE, name: &CStr, function: *const (), arity: c_int) {
    // SAFETY: guaranteed by the caller. Ruby casts it back to the type for `arity`.
    unsafe {
        let function = std::mem::transmute::<*const (), unsafe extern "C" fn() -> VALUE>(function);
        rb_define_method(class, name.as_ptr(), Some(function), arity);
    }
}

/// Defines a private method; see the macro `private_method!`.
///
/// # Safety
/// `function` must match the signature for `arity`.
pub(crate) unsafe fn define_private(class: VALUE, name: &CStr, function: *const (), arity: c_int) {
    // SAFETY: guaranteed by the caller. Ruby casts it back to the type for `arity`.
    unsafe {
        let function = std::mem::transmute::<*const (), unsafe extern "C" fn() -> VALUE>(function);
        rb_define_private_method(class, name.as_ptr(), Some(function), arity);
    }
}

pub(crate) fn id(name: &CStr) -> ID {
    // SAFETY: it returns the ID of the name.
    unsafe { rb_intern(name.as_ptr()) }
}

/// Returns the bytes of a string. They are valid until Ruby is called again, because this can
/// change the string.
///
/// # Safety
/// `object` must be a live string.
#[inline(always)]
pub(crate) unsafe fn bytes<'a>(object: VALUE) -> &'a [u8] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let length = rb_sys::RSTRING_LEN(object) as usize;
        std::slice::from_raw_parts(rb_sys::RSTRING_PTR(object).cast(), length)
    }
}

/// Returns whether the object is a string.
pub(crate) fn is_string(object: VALUE) -> bool {
    is(object, ruby_value_type::RUBY_T_STRING)
}

pub(crate) fn is(object: VALUE, kind: ruby_value_type) -> bool {
    // SAFETY: this is valid for any object.
    unsafe { rb_sys::RB_TYPE_P(object, kind) }
}

/// Copies a Ruby string to a Rust one.
pub(crate) fn text(object: VALUE) -> Result<String, Raise> {
    if !is_string(object) {
        return Err(Raise::New(c"TypeError", "wrong argument type: use a String".into()));
    }
    // SAFETY: it is a string, and is copied before Ruby is called again.
    Ok(String::from_utf8_lossy(unsafe { bytes(object) }).into_owned())
}

/// Returns the elements of an array.
pub(crate) fn list(object: VALUE) -> Result<Vec<VALUE>, Raise> {
    if !is(object, ruby_value_type::RUBY_T_ARRAY) {
        return Err(Raise::New(c"TypeError", "wrong argument type: use an Array".into()));
    }
    // SAFETY: it is an array. `rb_ary_entry` returns nil beyond its end.
    unsafe {
        let length = rb_sys::RARRAY_LEN(object);
        Ok((0..length).map(|i| rb_ary_entry(object, i)).collect())
    }
}

/// Returns the strings of an array.
pub(crate) fn texts(object: VALUE) -> Result<Vec<String>, Raise> {
    list(object)?.into_iter().map(text).collect()
}

/// Returns the floats of an array.
pub(crate) fn floats(object: VALUE) -> Result<Vec<f64>, Raise> {
    let float = |object: VALUE| match is(object, ruby_value_type::RUBY_T_FLOAT) {
        // SAFETY: it is a float.
        true => Ok(unsafe { rb_sys::rb_float_value(object) }),
        false => Err(Raise::New(c"TypeError", "wrong argument type: use a Float".into())),
    };
    list(object)?.into_iter().map(float).collect()
}

/// Makes a string. It may raise: call it in [`protect`].
pub(crate) fn string(text: &str) -> VALUE {
    // SAFETY: the string is copied.
    unsafe { rb_utf8_str_new(text.as_ptr().cast(), text.len().try_into().unwrap_or(0)) }
}

/// Makes an array. It may raise: call it in [`protect`].
pub(crate) fn array<T>(items: &[T], make: impl Fn(&T) -> VALUE) -> VALUE {
    // SAFETY: the array is on the stack, where the conservative collector finds it.
    unsafe {
        let array = rb_ary_new_capa(items.len().try_into().unwrap_or(0));
        for item in items {
            rb_ary_push(array, make(item));
        }
        array
    }
}

/// Makes a float. This may raise: call it in [`protect`], or in a frame with only plain data.
pub(crate) fn float(n: f64) -> VALUE {
    // SAFETY: it returns a new object.
    unsafe { rb_float_new(n) }
}
