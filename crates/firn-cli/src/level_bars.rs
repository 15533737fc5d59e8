//! Draws the sizes of levels as bars.

/// Width of the longest bar, in character cells.
const WIDTH: u64 = 48;

/// Returns a bar for each of `sizes`; the largest size gets the longest bar. Sizes above zero get
/// at least an eighth of a cell.
pub fn bars(sizes: &[u64]) -> Vec<String> {
    const EIGHTHS: [char; 8] = [' ', '▏', '▎', '▍', '▌', '▋', '▊', '▉'];
    let largest = sizes.iter().copied().max().unwrap_or(0).max(1);
    let bar = |&size: &u64| {
        let eighths = u128::from(size) * u128::from(WIDTH * 8) / u128::from(largest);
        let eighths = (eighths as usize).max(usize::from(size > 0));
        let mut bar = "█".repeat(eighths / 8);
        if eighths % 8 > 0 {
            bar.push(EIGHTHS[eighths % 8]);
        }
        bar
    };
    sizes.iter().map(bar).collect()
}

#[cfg(test)]
mod tests {
    use super::bars;

    #[test]
    fn the_largest_fills_the_width_and_nothing_is_lost() {
        let bars = bars(&[0, 1, 500, 1000]);
        let cells: Vec<usize> = bars.iter().map(|bar| bar.chars().count()).collect();
        assert_eq!(cells, [0, 1, 24, 48]);
    }

    #[test]
    fn an_empty_tree_has_no_bars() {
        assert_eq!(bars(&[0, 0]), ["", ""]);
    }
}
