using System.Globalization;

namespace Quantra.Client.Managed;

/// <summary>Parses feature expressions. Nothing is executed as code; errors have the position.</summary>
/// <remarks>
/// comparison = sum [ (">" | "&lt;") sum ]; sum = product { ("+" | "-") product }; product = unary { ("*" | "/") unary };
/// unary = "-" unary | atom; atom = number | "$" field | operator "(" arguments ")" | "(" comparison ")"
/// </remarks>
internal sealed class ExpressionParser
{
    private const int LongestText = 2000;
    private const int DeepestNesting = 32;
    private const int MostNodes = 500;
    private const int LongestLookback = 2000;

    private readonly string _text;
    private readonly IReadOnlyCollection<string> _fields;
    private readonly List<Token> _tokens;
    private int _place;
    private int _nodes;

    private ExpressionParser(string text, IReadOnlyCollection<string> fields) =>
        (_text, _fields, _tokens) = (text, fields, Tokenise(text));

    private enum TokenKind
    {
        Number,
        Field,
        Name,
        Symbol,
        End,
    }

    private Token Next => _tokens[_place];

    /// <summary>Parses an expression.</summary>
    /// <param name="text">The expression.</param>
    /// <param name="fields">Names of the columns that it may read.</param>
    /// <exception cref="QuantraException">EXPRESSION_INVALID: with the first invalid position.</exception>
    public static Expression Parse(string text, IReadOnlyCollection<string> fields) => new ExpressionParser(text, fields).Parse();

    private Expression Parse()
    {
        var term = ParseComparison(0);
        if (Next.Kind != TokenKind.End)
            throw Error(Next.Position, $"expected an operator or the end, found '{Next.Text}'");
        if (term.IsConstant)
            throw Error(term.Position, "a feature must read at least one field");
        var length = term.Tree.ToString().Length;
        if (length > LongestText)
            throw Error(term.Position, $"in canonical form it has {length} characters, at most {LongestText} are allowed");
        return term.Tree;
    }

    private static List<Token> Tokenise(string text)
    {
        if (text.Length > LongestText)
            throw CreateError(text, LongestText, $"an expression has at most {LongestText} characters");
        List<Token> tokens = [];
        var position = 0;
        while (true)
        {
            while (position < text.Length && text[position] is ' ' or '\t' or '\r' or '\n')
                position++;
            if (position >= text.Length)
                break;
            var (kind, end) = Scan(text, position);
            if (end == position)
                throw CreateError(text, position, $"unexpected '{text[position]}'");
            tokens.Add(new Token(kind, text[position..end], position));
            position = end;
        }
        tokens.Add(new Token(TokenKind.End, "", text.Length));
        return tokens;
    }

    /// <summary>The kind and the end of the token at a position; the end is the position itself if there is none.</summary>
    private static (TokenKind Kind, int End) Scan(string text, int position)
    {
        var next = position + 1 < text.Length ? text[position + 1] : '\0';
        return text[position] switch
        {
            >= '0' and <= '9' => (TokenKind.Number, EndOfNumber(text, position)),
            '.' when char.IsAsciiDigit(next) => (TokenKind.Number, EndOfNumber(text, position)),
            '$' when IsLetter(next) => (TokenKind.Field, EndOfName(text, position + 1)),
            var letter when IsLetter(letter) => (TokenKind.Name, EndOfName(text, position)),
            '-' or '+' or '*' or '/' or '(' or ')' or ',' or '<' or '>' => (TokenKind.Symbol, position + 1),
            _ => (TokenKind.End, position),
        };
    }

    private static bool IsLetter(char one) => char.IsAsciiLetter(one) || one == '_';

    private static int EndOfName(string text, int position)
    {
        while (position < text.Length && (IsLetter(text[position]) || char.IsAsciiDigit(text[position])))
            position++;
        return position;
    }

    private static int EndOfNumber(string text, int position)
    {
        position = EndOfDigits(text, position);
        if (position < text.Length && text[position] == '.')
            position = EndOfDigits(text, position + 1);
        if (position < text.Length && text[position] is 'e' or 'E')
        {
            var digits = position + 1;
            if (digits < text.Length && text[digits] is '+' or '-')
                digits++;
            var end = EndOfDigits(text, digits);
            if (end > digits)
                position = end;
        }
        return position;
    }

    private static int EndOfDigits(string text, int position)
    {
        while (position < text.Length && char.IsAsciiDigit(text[position]))
            position++;
        return position;
    }

    private static QuantraException CreateError(string text, int position, string problem) => new QuantraError(
        QuantraStatus.InvalidArgument,
        QuantraReason.ExpressionInvalid,
        $"column {position + 1}: {problem}: {(text.Length <= 200 ? text : text[..200] + "…")}").ToException();

    private QuantraException Error(int position, string problem) => CreateError(_text, position, problem);

    private Token Take() => _tokens[_place++];

    private bool TakeSymbol(char symbol)
    {
        var isNext = IsNext(symbol);
        if (isNext)
            _place++;
        return isNext;
    }

    private bool IsNext(char symbol) => Next.Kind == TokenKind.Symbol && Next.Text[0] == symbol;

    private Term ParseComparison(int depth)
    {
        var left = Sum(depth);
        return IsNext('>') || IsNext('<') ? CreateBinary(Take(), left, Sum(depth)) : left;
    }

    private Term Sum(int depth)
    {
        var left = Product(depth);
        while (IsNext('+') || IsNext('-'))
            left = CreateBinary(Take(), left, Product(depth));
        return left;
    }

    private Term Product(int depth)
    {
        var left = ParseUnary(depth);
        while (IsNext('*') || IsNext('/'))
            left = CreateBinary(Take(), left, ParseUnary(depth));
        return left;
    }

    private Term ParseUnary(int depth)
    {
        var position = Next.Position;
        if (!TakeSymbol('-'))
            return ParseAtom(depth);
        var operand = ParseUnary(IncreaseDepth(depth, position));
        return CreateNode(new NegativeExpression(operand.Tree), [operand], position, operand.Flatness, operand.Lookback);
    }

    private Term ParseAtom(int depth)
    {
        var token = Take();
        switch (token.Kind)
        {
            case TokenKind.Number:
                return Number(token);
            case TokenKind.Field:
                return Field(token);
            case TokenKind.Name:
                return Call(token, IncreaseDepth(depth, token.Position));
            case TokenKind.Symbol when token.Text == "(":
                var term = ParseComparison(IncreaseDepth(depth, token.Position));
                if (!TakeSymbol(')'))
                    throw Error(Next.Position, $"expected ')' to close the parenthesis of column {token.Position + 1}");
                return term;
            default:
                var found = token.Kind == TokenKind.End ? "the end" : $"'{token.Text}'";
                throw Error(token.Position, $"expected a number, a field or an operator, found {found}");
        }
    }

    private int IncreaseDepth(int depth, int position) =>
        depth < DeepestNesting ? depth + 1 : throw Error(position, $"an expression may be nested at most {DeepestNesting} deep");

    private Term Number(Token token)
    {
        var value = ValueOf(token);
        if (!double.IsFinite(value))
            throw Error(token.Position, $"{token.Text} is too large for a number");
        return CreateNode(new NumberExpression(value), [], token.Position, value != 0 ? Flatness.Number : Flatness.Spread, 1);
    }

    private static double ValueOf(Token token) => double.Parse(token.Text, NumberStyles.Float, CultureInfo.InvariantCulture);

    private Term Field(Token token)
    {
        var name = token.Text[1..];
        if (!_fields.Contains(name))
            throw Error(token.Position, $"unknown field {token.Text}; fields are {string.Join(", ", _fields.Select(one => "$" + one))}");
        return CreateNode(new FieldExpression(name), [], token.Position, Flatness.Level, 1);
    }

    private Term CreateBinary(Token symbol, Term left, Term right)
    {
        var operation = symbol.Text[0];
        if (operation == '/')
            CheckDenominator(right);
        var flatness = operation switch
        {
            '+' => Operator.OfSum(left.Flatness, right.Flatness),
            '*' => Operator.OfProduct(left.Flatness, right.Flatness),
            '/' => Operator.OfQuotient(left.Flatness, right.Flatness),
            _ => Flatness.Spread,
        };
        var tree = new BinaryExpression(operation, left.Tree, right.Tree);
        var lookback = Math.Max(left.Lookback, right.Lookback);
        return CreateNode(tree, [left, right], symbol.Position, flatness, lookback) with { Position = left.Position };
    }

    private void CheckDenominator(Term term)
    {
        if (term.Tree is NumberExpression { Value: 0.0 })
            throw Error(term.Position, "division by zero");
        if (term.Flatness == Flatness.Spread)
        {
            throw Error(
                term.Position,
                "this denominator is only rounding at flat prices; add a term of their size, as in x / (Std($close, 20) + 1e-9 * Mean($close, 20))");
        }
    }

    private Term Call(Token name, int depth)
    {
        if (!Operator.ByName.TryGetValue(name.Text, out var called))
            throw Error(name.Position, $"unknown operator {name.Text}; use one of {string.Join(", ", Operator.ByName.Keys)}");
        if (!TakeSymbol('('))
            throw Error(Next.Position, $"expected '(' after {name.Text}: {called.Signature}");
        var place = 0;
        var series = new Term[called.Series];
        for (var k = 0; k < series.Length; k++)
            series[k] = ParseSeries(called, place++, depth);
        var windows = new int[called.Windows.Length];
        for (var k = 0; k < windows.Length; k++)
            windows[k] = ParseWindow(called, k, place++);
        double[] numbers = called.Number is null ? [] : [ParseConstant(called, place)];
        if (!TakeSymbol(')'))
            throw Error(Next.Position, $"expected ')' after the last argument of {called.Signature}");
        var tree = new CallExpression(called, [.. series.Select(one => one.Tree)], windows, numbers);
        return CreateNode(
            tree,
            series,
            name.Position,
            called.CombineFlatness(series[0].Flatness, series[^1].Flatness),
            series.Max(one => one.Lookback) + called.ReachOf(windows));
    }

    /// <summary>Consumes the comma before every argument except the first.</summary>
    private void StartArgument(Operator called, int place)
    {
        var ended = IsNext(')');
        if (!ended && place > 0 && !TakeSymbol(','))
            throw Error(Next.Position, $"expected ',' between the arguments of {called.Signature}");
        if (ended)
            throw Error(Next.Position, $"{called.Signature} has more arguments, found {place}");
    }

    private Term ParseSeries(Operator called, int place, int depth)
    {
        StartArgument(called, place);
        var term = ParseComparison(depth);
        if (called.Windows.Length > 0 && term.IsConstant)
            throw Error(term.Position, $"{called.Name} looks back over a series, but this is a number");
        return term;
    }

    private int ParseWindow(Operator called, int index, int place)
    {
        StartArgument(called, place);
        var (token, (name, smallest)) = (Take(), called.Windows[index]);
        var isWhole = token.Kind == TokenKind.Number && token.Text.All(char.IsAsciiDigit);
        if (!isWhole || !int.TryParse(token.Text, NumberStyles.None, CultureInfo.InvariantCulture, out var value)
            || value < smallest || value > Operator.LongestWindow || !(IsNext(',') || IsNext(')')))
        {
            throw Error(
                token.Position,
                $"{name} of {called.Signature} must be a whole number from {smallest} to {Operator.LongestWindow}, found '{token.Text}'");
        }
        return value;
    }

    private double ParseConstant(Operator called, int place)
    {
        StartArgument(called, place);
        var (token, (name, smallest, largest)) = (Take(), called.Number!.Value);
        if (token.Kind != TokenKind.Number || ValueOf(token) is var value && !(value >= smallest && value <= largest))
        {
            throw Error(
                token.Position,
                string.Create(CultureInfo.InvariantCulture, $"{name} of {called.Signature} must be a number from {smallest} to {largest}, found '{token.Text}'"));
        }
        return ValueOf(token);
    }

    /// <summary>Creates a node after checking the limits of size, depth and look-back.</summary>
    private Term CreateNode(Expression tree, Term[] parts, int position, Flatness flatness, int lookback)
    {
        _nodes++;
        var height = 1 + parts.Select(one => one.Height).DefaultIfEmpty().Max();
        if (_nodes > MostNodes)
            throw Error(position, $"an expression has at most {MostNodes} nodes");
        if (height > DeepestNesting)
            throw Error(position, $"an expression may be nested at most {DeepestNesting} deep; group long sums with parentheses");
        if (lookback > LongestLookback)
            throw Error(position, $"this looks back {lookback} bars, at most {LongestLookback} are allowed");
        var isConstant = tree is not FieldExpression && parts.All(one => one.IsConstant);
        return new Term(tree, position, height, lookback, flatness, isConstant);
    }

    private readonly record struct Token(TokenKind Kind, string Text, int Position);

    /// <summary>A parsed subexpression with its position and the properties that are checked.</summary>
    private readonly record struct Term(
        Expression Tree, int Position, int Height, int Lookback, Flatness Flatness, bool IsConstant);
}
