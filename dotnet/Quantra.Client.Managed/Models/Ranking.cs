using System.Security.Cryptography;
using System.Text;

namespace Quantra.Client.Managed;

/// <summary>Scores and ranks of the symbols that have a forecast.</summary>
internal sealed class Ranking(double[] scores, int[] ranks, string universeHash)
{
    /// <summary>[S, H] NaN for a symbol without a forecast.</summary>
    public ReadOnlyMemory<double> Scores => scores;

    /// <summary>[S, H] 1 = best, equal scores share the best rank; 0 for a symbol without a forecast.</summary>
    public ReadOnlyMemory<int> Ranks => ranks;

    /// <summary>Hash of the symbols that were ranked together.</summary>
    public string UniverseHash => universeHash;

    /// <summary>Ranks symbols by their scores [S, H].</summary>
    public static Ranking Of(double[] scores, IReadOnlyList<string> symbols, bool[] usable)
    {
        int[] rows = [.. Enumerable.Range(0, usable.Length).Where(row => usable[row])];
        var (horizons, ranks) = (scores.Length / usable.Length, new int[scores.Length]);
        for (var horizon = 0; horizon < horizons; horizon++)
        {
            int[] order = [.. rows.Select(row => (row * horizons) + horizon).OrderByDescending(cell => scores[cell])];
            for (var place = 0; place < order.Length; place++)
                ranks[order[place]] = place > 0 && scores[order[place]] == scores[order[place - 1]] ? ranks[order[place - 1]] : place + 1;
        }

        var ranked = string.Join('\0', rows.Select(row => symbols[row]).Order(StringComparer.Ordinal));
        return new(scores, ranks, Convert.ToHexString(SHA256.HashData(Encoding.UTF8.GetBytes(ranked)))[..16].ToLowerInvariant());
    }

    /// <summary>Ranks by the members' mean ranks, because scores of different networks are not comparable; null if a member does not rank.</summary>
    public static Ranking? Joint(Forecast[] members, bool[] usable)
    {
        if (Array.Exists(members, one => one.Ranks is null))
            return null;
        double[] scores = EnsembleManifest.Mean(Array.ConvertAll(members, one => Array.ConvertAll(one.Ranks!.Value.ToArray(), rank => (double)-rank)), []);
        for (var cell = 0; cell < scores.Length; cell++)
            scores[cell] = usable[cell / (scores.Length / usable.Length)] ? scores[cell] : double.NaN;
        return Of(scores, members[0].Symbols, usable);
    }
}
