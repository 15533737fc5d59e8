//! Names of tables as names of files: the server's encoding of characters outside `[0-9A-Za-z_]`.
//!
//! Letters with two cases become `@` and two characters, so that file systems that ignore case keep
//! them apart. All other characters of the basic plane, the only one in names, become `@` and four
//! hexadecimal digits.

/// The letters that become `@` and two characters. Each line begins with the first of these
/// characters. Behind it stand the letters in the order of their second characters in [`SECOND`],
/// with `-` where there is no letter. Made with
/// `SELECT CONVERT(CHAR(n USING ucs2) USING filename)`.
const LETTERS: &str = include_str!("table_file_names.txt");

const SECOND: &str = "0123456789@ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";

/// The name that a table, or a database, has as a file.
pub fn encode(name: &str) -> String {
    let mut out = String::new();
    for c in name.chars() {
        match c {
            '0'..='9' | 'A'..='Z' | 'a'..='z' | '_' => out.push(c),
            _ => match letter(c) {
                Some((first, second)) => out.extend(['@', first, second]),
                None => out += &format!("@{:04x}", u32::from(c)),
            },
        }
    }
    out
}

fn letter(c: char) -> Option<(char, char)> {
    LETTERS.lines().find_map(|line| {
        let (first, letters) = line.split_once(' ')?;
        let at = letters.chars().position(|letter| letter == c)?;
        (c != '-').then_some((first.chars().next()?, SECOND.chars().nth(at)?))
    })
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn names_are_those_the_server_gives() {
        for (name, file) in [
            ("plain_T9", "plain_T9"),
            ("a-b", "a@002db"),
            ("t\u{e4}", "t@0k"),
            ("\u{df}\u{c4}", "@1j@0K"),
            ("\u{3b1}\u{416}", "@6l@M0"),
            ("a b.c/d", "a@0020b@002ec@002fd"),
            ("\u{6f22}", "@6f22"),
        ] {
            assert_eq!(encode(name), file, "{name}");
        }
    }
}
