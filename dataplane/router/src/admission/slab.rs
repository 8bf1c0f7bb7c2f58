//! Rows that are used again: a vector with a list of its free rows. Grows to what is used at once and allocates no
//! more.

/// No row.
pub(crate) const NONE: u32 = u32::MAX;

/// Rows by number.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    rows: Vec<Option<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { rows: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Puts a value into a free row. Bounds are the callers': whatever holds a row holds a place in a bounded queue.
    pub(crate) fn insert(&mut self, value: T) -> u32 {
        match self.free.pop() {
            Some(row) => {
                self.rows[row as usize] = Some(value);
                row
            }
            None => {
                self.rows.push(Some(value));
                (self.rows.len() - 1) as u32
            }
        }
    }

    /// Takes a value out, if the row holds one.
    pub(crate) fn remove(&mut self, row: u32) -> Option<T> {
        let value = self.rows.get_mut(row as usize)?.take()?;
        self.free.push(row);
        Some(value)
    }

    pub(crate) fn get(&self, row: u32) -> Option<&T> {
        self.rows.get(row as usize)?.as_ref()
    }

    pub(crate) fn get_mut(&mut self, row: u32) -> Option<&mut T> {
        self.rows.get_mut(row as usize)?.as_mut()
    }

    /// Rows in use.
    pub(crate) fn len(&self) -> usize {
        self.rows.len() - self.free.len()
    }

    /// One past the highest row there ever was.
    pub(crate) fn end(&self) -> u32 {
        self.rows.len() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_is_used_again_and_taken_once() {
        let mut slab = Slab::default();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!((slab.remove(a), slab.remove(a), slab.len()), (Some('a'), None, 1));
        assert_eq!((slab.insert('c'), slab.get(b), slab.get(9), slab.end()), (a, Some(&'b'), None, 2));
        *slab.get_mut(b).unwrap() = 'd';
        assert_eq!((slab.get(b), slab.len()), (Some(&'d'), 2));
    }
}
