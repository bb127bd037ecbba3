using System.Text.Json;

namespace Quantra.Client.Managed;

/// <summary>Settings of a network, after its kind, version and arithmetic were checked.</summary>
/// <param name="kind">Name of the kind.</param>
internal sealed class NetworkSettings(string kind)
{
    /// <summary>Epsilon of all layer norms.</summary>
    public const float NormEpsilon = 1e-5f;

    private const int MostHidden = 4096;
    private const int MostLayers = 16;
    private const int MostHeads = 64;
    private const int MostNeighbours = 256;
    private const int MostFrequencies = 64;
    private const int MostPatch = 64;
    private const int MostTrees = 2000;
    private const int MostLeaves = 64;
    private const string Head = "the level nearest to 0.5, plus or minus sums of softplus steps away from it";
    private const string Row = "observed, known, share of known cells";

    private static readonly (string, object)[] Context =
    [
        ("context", "last state, static, known of the session that the horizon ends on"),
        ("activation", "elu, alpha 1"),
        ("norm", "layer norm, variance over n"),
        ("norm_epsilon", 1e-5),
    ];

    private static readonly (string, object)[] Unconditional = [("head", Head + ", of the bias alone")];

    /// <summary>The conventions of each kind in its version 1.</summary>
    private static readonly Dictionary<string, (string Name, object Value)[]> Arithmetic = new(StringComparer.Ordinal)
    {
        ["lstm"] = [("row", Row), ("gates", "input, forget, cell, output"), .. Context, ("head", Head)],
        ["gru"] =
        [
            ("row", Row),
            ("gates", "reset, update, new; the reset gate multiplies the state after its linear map"),
            .. Context,
            ("head", Head),
        ],
        ["hybrid"] =
        [
            ("row", Row),
            ("gates", "input, forget, cell, output"),
            ("attention", "all sessions attend to all, softmax of q k / sqrt(width of a head); the states carry the order"),
            ("transformer", "layer norm before attention and before the inner layer, residual after each; gelu by erf, x 4"),
            .. Context,
            ("head", Head),
        ],
        ["tft"] =
        [
            ("past_variables", Row),
            ("future_variables", "known; their sum is 0 where there are none"),
            ("embedding", "linear, one for each variable of each group"),
            ("gate", "first half times sigmoid of the second"),
            ("activation", "elu, alpha 1"),
            ("lstm_gates", "input, forget, cell, output"),
            ("static_contexts", "selection, enrichment, initial state, initial cell; without static features none and 0"),
            ("attention", "value shared, heads averaged, each future session sees itself and all before it"),
            ("queries", "the sessions that horizons end on"),
            (
                "highway",
                "linear in the observed cells of the newest sessions, at most 2048; times twice the sigmoid of a linear map of what the head reads; added to every quantile of a horizon"),
            ("norm", "layer norm, variance over n"),
            ("norm_epsilon", 1e-5),
            ("head", Head),
        ],
        ["graph"] =
        [
            (
                "normalisation",
                "real DFT of each window and column, unknown cells at the mean of the known ones; a frequency leaves by clamp((power / (power of rank K + 1, plus 1e-12, plus 1e-09 of the largest power) - 1) / 0.5, 0, 1)"),
            ("row", Row + "; observed after normalisation"),
            ("patch", "rows of so many sessions after each other, oldest first; zeros before the window's first"),
            ("gates", "reset, update, new; the reset gate multiplies the state after its linear map"),
            ("state", "last state of the GRU plus elu of a linear map of what the normalisation took out"),
            (
                "attention",
                "over the row's neighbours; logit = query * key / sqrt(width of a head) + slope * weight; value = linear map of state and the last session's observed, less the row's own value; 0 without neighbours"),
            ("residual", "layer norm of state + a * sigmoid(b), a and b from the attended values"),
            ("level", "linear map of the window + linear map of the attended values, added to all quantiles of a horizon"),
            ("absent", "rows whose last session is wholly unknown; nobody attends to them"),
            .. Context,
            ("head", Head),
        ],
        ["trees"] =
        [
            (
                "columns",
                "observed features: last session, means and population standard deviations of the known cells of the last 5, 20 and all sessions, sums from the newest; known features of each target's session; static; location; scale"),
            ("split", "left if the value is at most the threshold; unknown values go to the side that the split names"),
            ("sum", "float64, from the first tree"),
        ],
        ["har"] = Unconditional,
        ["garch"] = Unconditional,
    };

    /// <summary>Name of the kind.</summary>
    public string Kind => kind;

    /// <summary>Width of the network.</summary>
    public int Hidden { get; private init; }

    /// <summary>Recurrent layers.</summary>
    public int Layers { get; private init; }

    /// <summary>Attention heads, a divisor of the width.</summary>
    public int Heads { get; private init; } = 1;

    /// <summary>Transformer layers of the hybrid.</summary>
    public int Blocks { get; private init; }

    /// <summary>Maximum number of neighbours of a stock in a graph.</summary>
    public int Neighbours { get; private init; }

    /// <summary>Maximum number of frequencies that a graph's normalisation removes; 0 = no normalisation.</summary>
    public int Frequencies { get; private init; }

    /// <summary>Sessions per step of a graph's encoder.</summary>
    public int Patch { get; private init; }

    /// <summary>Trees of each forest.</summary>
    public int Trees { get; private init; }

    /// <summary>Most leaves of a tree.</summary>
    public int Leaves { get; private init; }

    /// <summary>Whether a gated linear map of the observed features is added to the forecast.</summary>
    public bool HasHighway { get; private init; }

    /// <summary>Reads the manifest's entry of the network.</summary>
    /// <exception cref="QuantraException">ARTIFACT_INVALID: something is missing, unknown or invalid.</exception>
    public static NetworkSettings Read(JsonRecord network)
    {
        var kind = network.Text("kind");
        if (!Arithmetic.TryGetValue(kind, out var conventions))
        {
            throw network.Refusal(
                "kind",
                $"is '{kind}', but this version of Quantra.Client.Managed computes only {string.Join(", ", Arithmetic.Keys)}; use Quantra.Client or Quantra.Client.Embedded");
        }
        var version = network.Integer("kind_version");
        if (version != 1)
            throw network.Refusal("kind_version", $"is {version}, but this version of Quantra.Client.Managed computes version 1 of '{kind}'");
        CheckArithmetic(network, kind, conventions);
        var config = network.Record("config");
        network.End();
        var settings = ReadConfig(kind, config);
        config.End();
        return settings;
    }

    private static NetworkSettings ReadConfig(string kind, JsonRecord config)
    {
        if (kind is "har" or "garch")
            return new NetworkSettings(kind);
        if (kind == "trees")
            return new NetworkSettings(kind) { Trees = Whole(config, "trees", 1, MostTrees), Leaves = Whole(config, "leaves", 2, MostLeaves) };
        _ = config.Number("dropout");
        var settings = new NetworkSettings(kind)
        {
            Hidden = Whole(config, "hidden", kind == "tft" ? 2 : 1, MostHidden),
            Layers = kind is "tft" or "graph" ? 1 : Whole(config, "layers", 1, MostLayers),
            Heads = kind is "tft" or "hybrid" or "graph" ? Whole(config, "heads", 1, MostHeads) : 1,
            Blocks = kind == "hybrid" ? Whole(config, "blocks", 1, MostLayers) : 0,
            Neighbours = kind == "graph" ? Whole(config, "neighbours", 0, MostNeighbours) : 0,
            Frequencies = kind == "graph" ? Whole(config, "frequencies", 0, MostFrequencies) : 0,
            Patch = kind == "graph" ? Whole(config, "patch", 1, MostPatch) : 0,
            HasHighway = kind == "tft" && config.Flag("highway"),
        };
        return settings.Hidden % settings.Heads == 0
            ? settings
            : throw config.Refusal("hidden", $"is {settings.Hidden}, but must be a multiple of heads, {settings.Heads}");
    }

    private static int Whole(JsonRecord config, string name, int least, int most)
    {
        var value = config.Integer(name);
        return value >= least && value <= most ? value : throw config.Refusal(name, $"is {value}, but must be {least} to {most}");
    }

    private static void CheckArithmetic(JsonRecord network, string kind, (string Name, object Value)[] conventions)
    {
        var arithmetic = network.Record("arithmetic");
        foreach (var (name, value) in conventions)
        {
            var stored = arithmetic.Json(name);
            var same = value is string text
                ? stored.ValueKind == JsonValueKind.String && stored.GetString() == text
                : stored.ValueKind == JsonValueKind.Number && stored.GetDouble() == (double)value;
            if (!same)
                throw arithmetic.Refusal(name, $"is not that of '{kind}' version 1, {value}");
        }
        arithmetic.End();
    }
}
