namespace Quantra.Client.Managed;

/// <summary>The size of an expression at a flat price: a spread is only rounding there, and so no denominator.</summary>
internal enum Flatness
{
    /// <summary>A nonzero constant.</summary>
    Number,

    /// <summary>A value of the series' size.</summary>
    Level,

    /// <summary>Only rounding.</summary>
    Spread,
}

/// <summary>The arithmetic of a step.</summary>
internal enum Arithmetic
{
    Add,
    Subtract,
    Multiply,
    Divide,
    IsGreater,
    IsLess,
    Negate,
    Abs,
    Sign,
    Log,
    Sqrt,
    Greater,
    Less,
    Plus,
    Ref,
    Delta,
    Mean,
    Sum,
    Std,
    Var,
    Max,
    Min,
    Ema,
    Wilder,
    Slope,
    Rsquare,
    Resi,
    Corr,
    Rank,
    Quantile,
    IdxMax,
    IdxMin,
}

/// <summary>One named operator of set 1; an artifact records its set, so the meaning of an operator never changes.</summary>
/// <param name="Name">The name in expressions.</param>
/// <param name="Arithmetic">What it computes.</param>
/// <param name="Series">Number of series arguments, which come first.</param>
/// <param name="Windows">Name and smallest value of the integer arguments, which come second.</param>
internal sealed record Operator(string Name, Arithmetic Arithmetic, int Series, (string Name, int Smallest)[] Windows)
{
    /// <summary>The newest set of operators that this version computes.</summary>
    public const int Set = 1;

    /// <summary>Largest integer argument.</summary>
    public const int LongestWindow = 1000;

    private static readonly (string, int)[] N = [("n", 1)];
    private static readonly (string, int)[] N2 = [("n", 2)];
    private static readonly (string, int)[] Taps = [("n", 1), ("taps", 1)];

    /// <summary>Name, smallest and largest value of a last argument that is no integer; null = none.</summary>
    public (string Name, double Smallest, double Largest)? Number { get; private init; }

    /// <summary>All operators by name.</summary>
    public static IReadOnlyDictionary<string, Operator> ByName { get; } = new Operator[]
    {
        new("Ref", Arithmetic.Ref, 1, [("n", 0)]),
        new("Delta", Arithmetic.Delta, 1, N),
        new("Mean", Arithmetic.Mean, 1, N),
        new("Sum", Arithmetic.Sum, 1, N),
        new("Std", Arithmetic.Std, 1, N2),
        new("Var", Arithmetic.Var, 1, N2),
        new("Max", Arithmetic.Max, 1, N),
        new("Min", Arithmetic.Min, 1, N),
        new("EMA", Arithmetic.Ema, 1, Taps),
        new("Wilder", Arithmetic.Wilder, 1, Taps),
        new("Slope", Arithmetic.Slope, 1, N2),
        new("Rsquare", Arithmetic.Rsquare, 1, N2),
        new("Resi", Arithmetic.Resi, 1, N2),
        new("Corr", Arithmetic.Corr, 2, N2),
        new("Rank", Arithmetic.Rank, 1, N),
        new("Quantile", Arithmetic.Quantile, 1, N) { Number = ("level", 0.0, 1.0) },
        new("IdxMax", Arithmetic.IdxMax, 1, N),
        new("IdxMin", Arithmetic.IdxMin, 1, N),
        new("Plus", Arithmetic.Plus, 1, []) { Number = ("c", 1e-12, 1.0) },
        new("Abs", Arithmetic.Abs, 1, []),
        new("Sign", Arithmetic.Sign, 1, []),
        new("Log", Arithmetic.Log, 1, []),
        new("Sqrt", Arithmetic.Sqrt, 1, []),
        new("Greater", Arithmetic.Greater, 2, []),
        new("Less", Arithmetic.Less, 2, []),
    }.ToDictionary(one => one.Name, StringComparer.Ordinal);

    /// <summary>The name with the names of the arguments.</summary>
    public string Signature
    {
        get
        {
            List<string> arguments = [Series == 2 ? "x, y" : "x", .. Windows.Select(one => one.Name)];
            if (Number is { } last)
                arguments.Add(last.Name);
            return $"{Name}({string.Join(", ", arguments)})";
        }
    }

    /// <summary>Number of bars that it reads before the current one.</summary>
    public int ReachOf(int[] windows) => Arithmetic switch
    {
        Arithmetic.Ref or Arithmetic.Delta => windows[0],
        _ => windows.Length > 0 ? windows[^1] - 1 : 0,
    };

    /// <summary>The flatness of the result, from that of the series arguments.</summary>
    public Flatness CombineFlatness(Flatness first, Flatness last) => Arithmetic switch
    {
        Arithmetic.Ref or Arithmetic.Abs or Arithmetic.Sqrt => first,
        Arithmetic.Greater => OfSum(first, last),
        Arithmetic.Less => first == Flatness.Spread || last == Flatness.Spread ? Flatness.Spread : Flatness.Level,
        Arithmetic.Delta or Arithmetic.Std or Arithmetic.Var or Arithmetic.Slope or Arithmetic.Rsquare or Arithmetic.Resi
            or Arithmetic.Corr or Arithmetic.Sign => Flatness.Spread,
        _ => Flatness.Level,
    };

    /// <summary>A level dominates a spread; a number does not, because it is not relative to the prices.</summary>
    public static Flatness OfSum(Flatness left, Flatness right)
    {
        if (left == Flatness.Level || right == Flatness.Level)
            return Flatness.Level;
        return left == right ? left : Flatness.Spread;
    }

    /// <summary>A product with a spread is a spread.</summary>
    public static Flatness OfProduct(Flatness left, Flatness right)
    {
        if (left == Flatness.Spread || right == Flatness.Spread)
            return Flatness.Spread;
        return left == Flatness.Number && right == Flatness.Number ? Flatness.Number : Flatness.Level;
    }

    /// <summary>The numerator decides; the denominator is never a spread.</summary>
    public static Flatness OfQuotient(Flatness above, Flatness below) =>
        above == Flatness.Number && below == Flatness.Level ? Flatness.Level : above;
}
