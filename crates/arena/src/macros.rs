//! `vec!` and `format!` in an arena: [`arena_vec!`](crate::arena_vec) and
//! [`arena_format!`](crate::arena_format).

/// Creates an [`ArenaVec`](crate::ArenaVec) of the listed values, or of clones of one value.
///
/// The part after `in` is the arena, scope or batch: an expression of a type that implements
/// [`Within`](crate::Within). The block is exactly large enough.
///
/// ```
/// use quipu_arena::{Arena, arena_vec};
///
/// let arena = Arena::new();
/// let mut codes = arena_vec![in &arena; 200, 404];
/// codes.push(500);
/// assert_eq!(codes, [200, 404, 500]);
///
/// let buckets = arena_vec![in &arena; 0_u64; 8];
/// assert_eq!(buckets, [0; 8]);
///
/// let mut names = arena_vec![in &arena];
/// names.push("requests");
/// ```
///
/// After `try`, the result is a `Result`:
///
/// ```
/// use quipu_arena::{AllocError, Arena, arena_vec};
///
/// let mut buffer = [std::mem::MaybeUninit::uninit(); 256];
/// let arena = Arena::<quipu_arena::Up, _>::in_buffer(&mut buffer);
/// assert_eq!(arena_vec![try in &arena; 1, 2, 3]?, [1, 2, 3]);
/// assert!(arena_vec![try in &arena; 0_u8; 1000].is_err());
/// let mut empty = arena_vec![try in &arena]?;
/// empty.push(1);
/// # Ok::<(), AllocError>(())
/// ```
///
/// # Errors
///
/// With `try`, an [`AllocError`](crate::AllocError) if the base allocator is out of memory.
///
/// # Panics
///
/// Without `try`, if the base allocator is out of memory.
#[macro_export]
macro_rules! arena_vec {
    (in $home:expr $(;)?) => {
        $crate::ArenaVec::new_in($home)
    };
    (in $home:expr; $value:expr; $len:expr) => {
        $crate::ArenaVec::from_iter_in(::core::iter::repeat_n($value, $len), $home)
    };
    (in $home:expr; $($value:expr),+ $(,)?) => {
        $crate::ArenaVec::from_iter_in([$($value),+], $home)
    };
    (try in $home:expr $(;)?) => {
        ::core::result::Result::<_, $crate::AllocError>::Ok($crate::ArenaVec::new_in($home))
    };
    (try in $home:expr; $value:expr; $len:expr) => {
        $crate::ArenaVec::try_from_iter_in(::core::iter::repeat_n($value, $len), $home)
    };
    (try in $home:expr; $($value:expr),+ $(,)?) => {
        $crate::ArenaVec::try_from_iter_in([$($value),+], $home)
    };
}

/// Creates an [`ArenaString`](crate::ArenaString) from a format string and its arguments.
///
/// The part after `in` is the arena, scope or batch: an expression of a type that implements
/// [`Within`](crate::Within). The string grows while it is formatted. If you need a `&str`, use
/// [`alloc_fmt`](crate::Arena::alloc_fmt).
///
/// ```
/// use quipu_arena::{AllocError, Arena, arena_format};
///
/// let arena = Arena::new();
/// let (method, status) = ("GET", 200);
/// let mut line = arena_format!(in &arena, "{method} {status}");
/// line.push('\n');
/// assert_eq!(line, "GET 200\n");
///
/// let line = arena_format!(try in &arena, "{:>5}", status)?;
/// assert_eq!(line, "  200");
/// # Ok::<(), AllocError>(())
/// ```
///
/// # Errors
///
/// With `try`, an [`AllocError`](crate::AllocError) if the base allocator is out of memory, or a
/// `Display` implementation returns an error.
///
/// # Panics
///
/// Without `try`, in the same cases.
#[macro_export]
macro_rules! arena_format {
    (in $home:expr, $($arguments:tt)+) => {
        $crate::ArenaString::from_fmt_in(::core::format_args!($($arguments)+), $home)
    };
    (try in $home:expr, $($arguments:tt)+) => {
        $crate::ArenaString::try_from_fmt_in(::core::format_args!($($arguments)+), $home)
    };
}
